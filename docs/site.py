"""Which files the documentation site has: a hook of mkdocs (mkdocs.yml).

The pages keep the places that they have in the repository, so that their links lead to the same files in both. A file
that a page links to and that is no page itself, such as a module, is copied beside it.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/*.md", "notebooks/*.md", "notebooks/*.ipynb")
PAGES += ("lab/README.md", "lab/docs/*.md", "lab/residuals/README.md", "lab/studies/*/README.md")
STYLE = ROOT / "docs" / "site.css"
LINK = re.compile(r"\]\(([^():#\s]+)")
FIRST = "/__init__.py"
API = {  # the pages of the public API: the title and the modules of each
    "run": ("A trained run", ("vaswani", "infer", "infer/api.py")),
    "model": ("The model", ("model/*.py",)),
    "mixers": ("Mixers", ("model/*/*.py",)),
    "search": ("Search", ("search/**/*.py",)),
}
EXPLORER = "explorer.html"
FRAMED = f"notebooks/3_attention_maps/{EXPLORER}"  # beside the page of the notebook that has it in a frame


@event_priority(100)  # before the plugin that turns notebooks into pages
def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Returns the files of the site in place of those of docs/, and those of the theme: styles, scripts, icons."""
    pages = [path for pattern in PAGES for path in sorted(ROOT.glob(pattern))]
    linked = sorted({path for page in pages for path in linked_files(page)} - set(pages))
    ours = [_file(path, config) for path in (*pages, *linked, STYLE)]
    of_theme = [file for file in files if file.src_dir != config.docs_dir]
    page = explorer()
    explorers = [File.generated(config, place, content=page) for place in (EXPLORER, FRAMED)]
    of_api = [File.generated(config, f"api/{name}.md", content=api(name)) for name in API]
    return Files([*of_theme, *ours, *of_api, *explorers])


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Returns a page whose links to folders of code lead to their first file: the site has no page of a folder."""
    folder = (ROOT / page.file.src_uri).parent
    if page.file.src_uri == "README.md":  # only the site has the page, of two megabytes
        title, rest = markdown.split("\n", 1)
        markdown = f"{title}\n\n[A trained model, in your browser]({EXPLORER})\n{rest}"
    return LINK.sub(lambda link: link[0] + FIRST if (folder / link[1] / FIRST[1:]).is_file() else link[0], markdown)


def linked_files(page: Path) -> list[Path]:
    """Returns the files of the repository that a page links to, of a folder of code the first."""
    targets = [(page.parent / link).resolve() for link in LINK.findall(page.read_text(encoding="utf-8"))]
    named = [target / FIRST[1:] if target.is_dir() else target for target in targets]
    return [target for target in named if target.is_file()]


def _file(path: Path, config: MkDocsConfig) -> File:
    return File(path.relative_to(ROOT).as_posix(), str(ROOT), config.site_dir, config.use_directory_urls)


def explorer() -> str:
    """Returns the page in which the model that comes with the code runs."""
    # By the command, in a process of its own: what jax is loaded with would print the warnings of mkdocs' plugins.
    command = [sys.executable, "-m", "infer.explorer", "--workdir=builtin:tatoeba"]
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / EXPLORER
        subprocess.run([*command, f"--output={output}"], cwd=ROOT, check=True, capture_output=True)
        return output.read_text(encoding="utf-8")


def api(name: str) -> str:
    """Returns a page of the public API: every module of its patterns."""
    title, patterns = API[name]
    modules = [path for pattern in patterns for path in sorted(ROOT.glob(pattern))]
    return "\n\n".join([f"# {title}", *(f"::: {_module(path)}" for path in modules)]) + "\n"


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    name = ".".join(parts).removesuffix(".__init__")
    return name if name == "vaswani" else f"vaswani.{name}"
