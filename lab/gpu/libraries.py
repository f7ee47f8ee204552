"""CUDA 12's cuBLAS for CTranslate2, whose wheel opens `libcublas.so.12`, where only CUDA 13 is installed.

All functions that it looks up are in CUDA 13's library as well, so a link with the old name does, for float16. Its own
kernels are PTX for sm_86, which the driver compiles at their first use.
"""

import importlib.util
import os
from pathlib import Path

OLD = "libcublas.so.12"
NEW = "libcublas.so.13"
SYSTEM = ("/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu")


def with_cublas_12(links: Path) -> dict[str, str]:
    """Returns what to add to a part's environment: nothing if there is a cuBLAS 12, or no cuBLAS 13 to stand in for it.

    `links` is a folder for the link, created if needed.
    """
    folders = [Path(name) for name in (*os.environ.get("LD_LIBRARY_PATH", "").split(":"), *SYSTEM) if name]
    nvidia = importlib.util.find_spec("nvidia")  # of the wheels
    wheels = nvidia.submodule_search_locations if nvidia else None
    for where in wheels or ():
        folders += sorted(path.parent for path in Path(where).glob("**/libcublas.so.1[23]"))
    if any((folder / OLD).exists() for folder in folders):
        return {}
    new = next((folder for folder in folders if (folder / NEW).exists()), None)
    if new is None:
        return {}
    links.mkdir(parents=True, exist_ok=True)
    (links / OLD).unlink(missing_ok=True)
    (links / OLD).symlink_to(new / NEW)
    path = [str(links), str(new), os.environ.get("LD_LIBRARY_PATH", "")]
    return {"LD_LIBRARY_PATH": ":".join(name for name in path if name)}
