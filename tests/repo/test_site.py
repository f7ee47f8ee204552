"""`make docs` builds the pages, the notebooks and the API without a warning; all that a page loads is in the site."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.extras import needed

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for package in ("mkdocs", "mkdocs_jupyter", "mkdocstrings"):
        needed(package)
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", f"--site-dir={folder}"]
    built = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert built.returncode == 0 and "WARNING" not in built.stderr, built.stderr
    return folder


def public(path: Path) -> list[str]:
    """Returns the full names of the public functions, classes and methods of a module, and of their `__call__`."""
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    names = []
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            names.append(f"{module}.{node.name}")
            inner = node.body if isinstance(node, ast.ClassDef) else []
            methods = [one.name for one in inner if isinstance(one, ast.FunctionDef)]
            names += [f"{module}.{node.name}.{name}" for name in methods if name == "__call__" or name[0] != "_"]
    return names


@pytest.mark.slow
def test_every_page_and_notebook_is_built(site: Path) -> None:
    from docs.site import explorer  # here, since it needs mkdocs

    for page in (*ROOT.glob("docs/*.md"), *ROOT.glob("lab/docs/*.md")):
        assert (site / page.relative_to(ROOT).with_suffix("") / "index.html").exists()
    for page in ROOT.glob("lab/studies/*/README.md"):
        assert (site / page.relative_to(ROOT).with_name("index.html")).exists()
        assert (site / page.relative_to(ROOT).with_name("figure.svg")).exists()
    for notebook in ROOT.glob("notebooks/*.ipynb"):
        html = (site / "notebooks" / notebook.stem / "index.html").read_text(encoding="utf-8")
        assert "data:image/png;base64" in html, "its pictures"
    assert "docs/explorer.png" in (site / "index.html").read_text(encoding="utf-8")
    notebook = site / "notebooks" / "3_attention_maps"
    assert 'src="explorer.html"' in (notebook / "index.html").read_text(encoding="utf-8")
    assert (notebook / "explorer.html").read_bytes() == (site / "explorer.html").read_bytes()
    assert 'href="explorer.html"' in (site / "index.html").read_text(encoding="utf-8")
    assert (site / "explorer.html").read_text(encoding="utf-8") == explorer(), "as the command writes it now"
    assert (site / "docs" / "explorer.png").exists() and (site / "model" / "stack.py").exists()


@pytest.mark.slow
def test_the_api_has_load_run_and_every_public_function_of_model_and_search(site: Path) -> None:
    html = "".join(page.read_text(encoding="utf-8") for page in site.glob("api/*/index.html"))
    shown = set(re.findall(r'id="vaswani\.((?:infer|model|search)\.[\w.]+)"', html))
    paths = [*ROOT.glob("model/**/*.py"), *ROOT.glob("search/**/*.py")]
    wanted = {name for path in paths for name in public(path)}
    assert {"infer.load_run", "model.stack.Stack", "model.attention.attention", "search.beam.beam_search"} <= shown
    assert wanted - shown == set()


@pytest.mark.slow
def test_a_page_loads_nothing_from_elsewhere(site: Path) -> None:
    loads = re.compile(r'<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)="(?:https?:)?//[^"]+"')
    for page in site.rglob("*.html"):
        found = [one for one in loads.findall(page.read_text(encoding="utf-8")) if 'rel="canonical"' not in one]
        assert found == [], page.relative_to(site)


@pytest.mark.slow
def test_the_styles_scripts_and_pictures_that_a_page_loads_are_in_the_site(site: Path) -> None:
    tags = re.compile(r'<(?:script|img|link)\b[^>]*?\b(?:src|href)="([^"]*)"[^>]*>')
    kinds = set()
    for page in site.rglob("*.html"):
        html = page.read_text(encoding="utf-8")
        loads = [tag[1] for tag in tags.finditer(html) if not re.search('rel="(next|prev|canonical)"', tag[0])]
        for path in loads:
            if path.startswith("data:"):
                continue
            assert path, f"{page.relative_to(site)}: an address that is empty"
            file = site / path[1:] if path[0] == "/" else page.parent / path
            assert file.is_file(), f"{page.relative_to(site)}: {path}"
            kinds.add(file.name.split(".")[0] + file.suffix)
    assert {"main.css", "bundle.js", "palette.css", "site.css", "explorer.png", "favicon.png"} <= kinds


@pytest.mark.slow
def test_the_formulas_of_a_notebook_are_drawn(site: Path) -> None:
    html = (site / "notebooks" / "1_attention_from_scratch" / "index.html").read_text(encoding="utf-8")
    assert 'aria-label="-10^9"' in html and "$-10^9$" not in html
    assert "MathJax" not in html


@pytest.mark.slow
def test_the_menu_is_in_reading_order_and_a_page_leads_to_the_next(site: Path) -> None:
    html = (site / "docs" / "commands" / "index.html").read_text(encoding="utf-8")
    menu = [" ".join(title.split()) for title in re.findall(r'class="md-ellipsis">([^<]+)<', html)]
    wanted = [
        "Start",
        "Quick checks",
        "Notebooks",
        "The paper's symbols",
        "Train and translate",
        "Why are dot products divided by sqrt(d_k)?",
    ]
    wanted += ["Do our curves lie on those that strangers published?", "API", "Changes"]
    places = [menu.index(title) for title in wanted]
    assert places == sorted(places)
    assert re.search('href="../configs/" class="md-footer__link md-footer__link--next"', html)
    assert len(set(re.findall('data-md-color-media="([^"]+)"', html))) == 3, "light, dark, and as the system is set"
