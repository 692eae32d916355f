"""The site: its reference has every public name and every option, and the checks of a built site find what is wrong.

`.ci/site --quick`, which `.ci/run` calls, builds the site itself.
"""

import ast
import dataclasses
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def tools():
    """The modules that make and check the site."""
    pytest.importorskip("tyro")
    sys.path.insert(0, str(ROOT / "docs" / "_ext"))
    try:
        import checks
        import command_pages
        import name_pages
        import public_names
    finally:
        sys.path.pop(0)
    return {"checks": checks, "commands": command_pages, "names": name_pages, "public": public_names}


@pytest.fixture(scope="module")
def name_pages(tools):
    return tools["names"].pages()


def listed():
    """Names in the `__all__` of every file of drjax, as its source has them."""
    for path in sorted((ROOT / "drjax").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [target.id for target in getattr(node, "targets", ()) if isinstance(target, ast.Name)]
            if names == ["__all__"] and isinstance(node.value, ast.List):
                yield from (f"{module}.{name}" for name in ast.literal_eval(node.value))


def test_every_public_name_is_in_the_reference(name_pages):
    text = "\n".join(name_pages.values())
    names = list(listed())
    assert len(names) > 200
    described = set(re.findall(r"^\.\. auto(?:class|function|data):: (\S+)$", text, re.M))
    led_to = dict(re.findall(r"^- ``(\S+)`` is :py:obj:`(\S+)`$", text, re.M))
    assert [name for name in names if name not in described and led_to.get(name) not in described] == []
    import drjax

    assert [f"drjax.{name}" for name in drjax.__all__ if f"drjax.{name}" not in described | set(led_to)] == []


def test_a_name_that_a_page_imports_is_in_the_reference(name_pages):
    text = "\n".join(name_pages.values())
    for name in ("attacks.shadow.shadow_embeddings", "bounds.ledger.Ledger", "reports.records.load_arrays"):
        assert re.search(rf":: drjax\.{name}$|^- ``drjax\.{name}`` is", text, re.M), name


def test_every_option_of_a_command_is_in_the_reference(tools):
    from drjax.audits import AuditConfig

    pages = tools["commands"].pages()
    for field in dataclasses.fields(AuditConfig):
        if field.name != "hyperparameters":
            assert f"`--{field.name.replace('_', '-')}" in pages["audit"], field.name
    assert {"# drjax attack", "## drjax attack model", "## drjax attack property"} <= set(pages["attack"].split("\n"))
    assert "`--perplexity" in pages["embed"]


def test_a_help_that_cannot_be_read_is_an_error(tools):
    with pytest.raises(ValueError, match="entries"):
        tools["commands"].parsed("usage: drjax x [-h]\n\nNothing.\n")


def test_docstrings_become_what_they_look_like(tools):
    lines = ["Takes *args and `x*y`.", "", "    code(*args)", "", "Then a_ comes."]
    lines += ["", "| a | b |", "|---|---|", "| 1 | 2 |"]
    assert tools["names"].as_text(lines) == [
        "Takes \\*args and `x*y`.",
        "",
        "::",
        "",
        "    code(*args)",
        "",
        "Then a\\_ comes.",
        "",
        ".. list-table::",
        "   :header-rows: 1",
        "",
        "   * - a",
        "     - b",
        "   * - 1",
        "     - 2",
        "",
        "",
    ]


@pytest.fixture
def site(tmp_path):
    """A site of two pages, without fault."""
    (tmp_path / "one.html").write_text('<h1 id="a">One</h1><a href="two.html#b">two</a><img src="x.png" alt="x">')
    (tmp_path / "two.html").write_text('<h1 id="b">Two</h1><a href="#b">up</a> <a href="https://example.org">out</a>')
    (tmp_path / "x.png").write_bytes(b"x")
    return tmp_path


def faults(tools, site):
    checks = tools["checks"]
    pages = checks.read(site)
    return [*checks.broken_links(pages), *checks.outer_sources(pages), *checks.too_heavy(pages)]


def test_a_sound_site_has_no_faults(tools, site):
    assert faults(tools, site) == []


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ('<a href="none.html">x</a>', "none.html leads nowhere"),
        ('<a href="two.html#none">x</a>', "two.html#none leads nowhere"),
        ('<img src="none.png">', "none.png leads nowhere"),
        ('<script src="https://example.org/a.js"></script>', "comes from another site"),
        ("x" * 500_001, "500,001 bytes"),
    ],
)
def test_faults_of_a_site_are_found(tools, site, page, said):
    (site / "three.html").write_text(page)
    (found,) = faults(tools, site)
    assert said in found


def test_a_heavy_picture_is_found(tools, site):
    (site / "x.png").write_bytes(b"x" * 500_001)
    (found,) = faults(tools, site)
    assert "x.png: 500,001 bytes" in found


def test_a_reference_that_lacks_a_name_is_found(tools, tmp_path):
    (tmp_path / "api").mkdir()
    (tmp_path / "api" / "drjax.html").write_text('<dt id="drjax.audit">')
    found = list(tools["checks"].undescribed(tools["checks"].read(tmp_path)))
    assert "drjax.attack is public and not in the reference" in found
    assert "drjax.audit is public and not in the reference" not in found


def test_links_to_other_sites_leave_our_placeholders_out(tools, site):
    ours = PROJECT["urls"]["Repository"]
    (site / "three.html").write_text(f'<a href="{ours}/x">x</a><a href="https://other.org">x</a>')
    found = tools["checks"].external(tools["checks"].read(site))
    assert "https://other.org" in found
    assert not any("/x" in link for link in found)


def test_without_a_site_the_check_fails(tmp_path):
    run = subprocess.run([sys.executable, ROOT / "docs" / "_ext" / "checks.py", tmp_path], capture_output=True)
    assert run.returncode == 1


def test_every_page_has_a_section():
    """A page that the side bar lacks is a warning of the build, which is an error: here it is said which."""
    patterns = re.findall(r'"((?:docs|experiments|bench)/[\w/*]+)"', (ROOT / "docs" / "conf.py").read_text("utf-8"))
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT).with_suffix("")
        assert name.as_posix() == "docs/index" or any(name.match(pattern) for pattern in patterns), name


def test_the_image_runs_as_a_user_without_rights_on_a_python_that_drjax_takes():
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert [line for line in text.splitlines() if line.startswith("USER")] == ["USER drjax"]
    minor = re.search(r"^FROM python:3\.(\d+)-", text, re.M)[1]
    assert f"Programming Language :: Python :: 3.{minor}" in PROJECT["classifiers"]
    # pip refuses a path with empty brackets.
    (words,) = re.findall(r'"(/src\$.*?)"', text)
    for extras, asked in (("", "/src"), ("ray", "/src[ray]")):
        run = subprocess.run(["sh", "-c", f'echo "{words}"'], env={"EXTRAS": extras}, capture_output=True, text=True)
        assert run.stdout == f"{asked}\n"
    needed = {"pyproject.toml", "constraints.txt", "README.md", "LICENSE", "drjax"}
    sent = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {line[1:] for line in sent if line.startswith("!")} == needed
    for name in needed:
        assert re.search(rf"^COPY .*\b{re.escape(name)}\b", text, re.M), name


def test_the_cluster_has_a_head_that_workers_and_sweeps_find():
    yaml = pytest.importorskip("yaml", reason="needs PyYAML, which the extra `dev` brings")
    services = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]
    port = services["head"]["entrypoint"][services["head"]["entrypoint"].index("--port") + 1]
    assert f"head:{port}" in services["worker"]["entrypoint"]
    assert services["sweep"]["environment"]["RAY_ADDRESS"] == f"head:{port}"
    assert all(service["volumes"] == services["head"]["volumes"] for service in services.values())
    assert all(service["build"]["args"]["EXTRAS"] in PROJECT["optional-dependencies"] for service in services.values())
