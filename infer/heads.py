"""Another name for `python -m paper.heads`, which says what each attention head does."""

import runpy

if __name__ == "__main__":
    runpy.run_module("paper.heads", run_name="__main__", alter_sys=True)
