"""Pages in a real browser: how they look, by pointer, keys and screen readers, without JavaScript and on paper.

Screenshots of every page are left in build/screenshots.
"""

import contextlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import drjax
from drjax.decisions import search
from drjax.reports import page as pages
from drjax.reports import plots
from drjax.reports.scatter import ScatterPlot
from drjax.reports.sections import Advice, Facts, Figure, Report, Table, Text, Verdict, provenance
from tests.data import messy
from tests.reports.test_page import png
from tests.reports.test_plots import baselines, row

REASON = "needs playwright and axe-playwright-python (the extra `test`)"
playwright = pytest.importorskip("playwright.sync_api", reason=REASON)
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason=REASON)

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
BROWSER = next((found for found in map(shutil.which, NAMES) if found), None)
SWITCHES = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
NARROW, WIDE = 390, 1280

pytestmark = [
    pytest.mark.figures,
    pytest.mark.skipif(
        BROWSER is None, reason=f"needs a Chromium or Chrome program; none of {', '.join(NAMES)} was found"
    ),
]


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        made = driver.chromium.launch(executable_path=BROWSER, headless=True, args=list(SWITCHES))
        yield made
        made.close()


def scatter_plot(n=300):
    rng = np.random.default_rng(0)
    shares = rng.lognormal(-2, 2, size=n)
    shares[:20] = np.nan
    order = np.argsort(np.where(np.isnan(shares), np.inf, shares))
    return ScatterPlot(
        title="Who is exposed on the map",
        points=rng.normal(size=(n, 2)) * [4, 1],
        shares=shares,
        labels=tuple(f"P{i:04} with an id that is rather long (line {i + 2})" for i in range(n)),
        marked=tuple(int(i) for i in order[:6]),
        rebuilt=shares < 0.5,
        caption="By the strongest attack.",
    )


def made_up():
    """A report with every kind of section and look."""
    rows = [*baselines(), row("closed form", 4e-7)]
    long = "without_any_space_" * 12
    cells = ("0.0123", "0.0100 to 0.0160")
    heads = ("Attack", *(f"Measure number {i}" for i in range(9)), "In words")
    table = Table(
        title="The ladder",
        paragraphs=(f"Read so. {long}",),
        headers=heads,
        rows=tuple((name, *[cells] * 9, "some words about it") for name in ("Mean of the others", "Ridge", "Network")),
        caption=f"Small print. {long}",
        note=f"Below. {long}",
        text_columns=(10,),
        strongest=2,
        baselines=(0,),
    )
    advice = (Advice(f"Publish this instead. {long}", "drjax defend " + "map.csv " * 30), Advice("Or nothing."))
    listing = Table(
        title=f"What is learned {long}", headers=("Column", "How"), rows=(("age", "exactly"),), text_columns=(1,)
    )
    return Report(
        kind="drjax exposure audit",
        title="Who is exposed by this release: /a/long/path/without/any/space/in/it/at/all/patients_of_2026.csv",
        notice="PRIVATE: for the owner of the records.",
        verdict=Verdict("high", "Do not publish as it is", f"Age within 0.4 years. {long}", (long,), (long,), advice),
        warnings=(("KEEP THIS.", "Only a measurement."),),
        sections=(
            scatter_plot(),
            Text(title="What to do", points=("Round the map.", long), code="drjax release pca " + "patients.csv " * 30),
            listing,
            table,
        ),
        details=(
            Facts(
                title="What was released",
                facts=(("Method", "PCA"), ("Data set", "a/path/" * 20), ("n", "1,200"), (long, long)),
            ),
            Figure(title="A drawing", caption="A caption.", svg=plots.svg(plots.ladder(rows)), alt="Three errors."),
            Figure(title="The same drawing", caption="Again.", svg=plots.svg(plots.ladder(rows)), alt="Three errors."),
            Figure(title="A picture", caption="Grey.", png=png(), alt="Grey."),
            Facts(title="Terms", facts=(("MSE", "How far off."), (long, long)), is_glossary=True),
            provenance({"drjax": "0.1.0", "commit": None, "data": long}),
        ),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    pages.write(made_up(), folder / "made-up.html")
    for level in ("not shown", "undetermined"):
        report = Report(kind="k", title="t", verdict=Verdict(level, "So.", "So it is."), sections=())
        pages.write(report, folder / f"{level.replace(' ', '-')}.html")
    return folder


@pytest.fixture(scope="module")
def audited(folder):
    (folder / "patients.csv").write_text(messy.patients(100, 1).text, encoding="utf-8")
    # No time but for the least number of options: the page looks the same with more.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "SECONDS", 0.0)
        drjax.audit(folder / "patients.csv", out=folder / "run")
    shutil.copy(folder / "run" / "report.html", folder / "audit.html")


@dataclass
class Opened:
    page: "playwright.Page"
    path: Path
    messages: list
    requests: list

    def scrolls_sideways(self):
        return self.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")


@pytest.fixture
def opened(browser, folder):
    """Opens a page; at its end nothing was fetched and the console is empty."""
    with contextlib.ExitStack() as stack:
        made = []

        def open_page(name, width=WIDE, scheme="light", *, script=True):
            size = {"width": width, "height": 800}
            context = browser.new_context(viewport=size, color_scheme=scheme, java_script_enabled=script, offline=True)
            stack.callback(context.close)
            page = context.new_page()
            one = Opened(page, folder / f"{name}.html", [], [])
            page.on("console", lambda message: one.messages.append(message.text))
            page.on("pageerror", lambda error: one.messages.append(str(error)))
            page.on("request", lambda request: one.requests.append(request.url))
            page.goto(one.path.as_uri())
            made.append(one)
            return one

        yield open_page
        for one in made:
            assert one.messages == []
            assert {url.split("#")[0] for url in one.requests if not url.startswith("data:")} == {one.path.as_uri()}


# The page that is made up has sections and colours of every kind: the others, each width and scheme once.
LOOKS = [("made-up", width, scheme) for width in (NARROW, WIDE) for scheme in ("light", "dark")]
LOOKS += [("audit", NARROW, "light"), ("audit", WIDE, "dark")]
LOOKS += [("not-shown", NARROW, "dark"), ("not-shown", WIDE, "light")]
LOOKS += [("undetermined", NARROW, "light"), ("undetermined", WIDE, "dark")]


@pytest.mark.parametrize(("name", "width", "scheme"), LOOKS)
def test_pages_fit_the_window_and_readers_aids(opened, request, name, width, scheme):
    if name == "audit":
        request.getfixturevalue("audited")
    one = opened(name, width, scheme)
    os.makedirs(SCREENSHOTS, exist_ok=True)
    one.page.screenshot(path=SCREENSHOTS / f"{name}-{width}-{scheme}.png", full_page=True)
    assert not one.scrolls_sideways()
    for details in one.page.query_selector_all("details:not([open])"):
        details.evaluate("one => { one.open = true }")
    one.page.screenshot(path=SCREENSHOTS / f"{name}-{width}-{scheme}-open.png", full_page=True)
    assert not one.scrolls_sideways()
    found = axe.Axe().run(one.page)
    assert found.violations_count == 0, found.generate_report()


def place_of(one, rank):
    """Where the point of this rank is in the window."""
    return one.page.evaluate(
        """rank => {
            const plot = document.querySelector(".plot > svg");
            const box = plot.getBoundingClientRect();
            const mark = plot.querySelector(`[data-rank="${rank}"]`);
            const [x, y] = mark.getAttribute("d").slice(1, -2).split(" ").map(Number);
            const scale = box.width / plot.viewBox.baseVal.width;
            return [box.left + x * scale, box.top + y * scale];
        }""",
        rank,
    )


@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_a_point_says_whose_it_is_where_the_pointer_is(opened, width):
    one = opened("made-up", width)
    plot, made = one.page.locator(".plot"), scatter_plot()
    plot.scroll_into_view_if_needed()
    tip = plot.locator(".tip")
    assert not tip.is_visible()
    for rank, text in enumerate(made.listed, 1):
        x, y = place_of(one, rank)
        one.page.mouse.move(x, y)
        assert tip.inner_text() == text
        box = tip.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        assert not one.scrolls_sideways()
    one.page.screenshot(path=SCREENSHOTS / f"tip-{width}.png")
    one.page.mouse.move(2, 2)
    assert not tip.is_visible()
    # The browser's own tooltips would come on top.
    assert one.page.locator(".plot title").count() == 0


def test_arrow_keys_go_through_the_most_exposed_and_the_plot_is_one_stop_of_tab(opened):
    one = opened("made-up")
    tip, listed = one.page.locator(".tip"), scatter_plot().listed
    assert one.page.locator(".plot [tabindex], .plot a").count() == 0
    one.page.locator(".plot").focus()
    assert one.page.locator(".hint").is_visible()
    said = []
    for key in ("ArrowRight", "ArrowDown", "ArrowLeft", "End", "ArrowRight", "Home", "ArrowUp"):
        one.page.keyboard.press(key)
        said.append(tip.inner_text())
    assert said == [listed[place] for place in (0, 1, 0, 5, 5, 0, 0)]
    at = one.page.evaluate("scrollY")
    one.page.keyboard.press("ArrowDown")
    assert one.page.evaluate("scrollY") == at
    one.page.keyboard.press("Escape")
    assert not tip.is_visible()
    one.page.keyboard.press("ArrowRight")
    assert tip.is_visible()
    one.page.keyboard.press("Tab")
    assert not tip.is_visible()


def test_contents_open_what_they_lead_to_and_collapse_on_a_narrow_page(opened):
    wide = opened("made-up")
    link = wide.page.get_by_role("link", name="Terms")
    assert link.is_visible()
    text = wide.page.get_by_text("How far off.")
    assert not text.is_visible()
    link.click()
    wide.page.wait_for_function("document.querySelectorAll('section > details[open]').length === 1")
    assert text.is_visible()
    assert wide.page.get_by_role("heading", name="Terms").is_visible()
    narrow = opened("made-up", NARROW)
    assert not narrow.page.get_by_role("link", name="Terms").is_visible()
    narrow.page.get_by_text("Contents").click()
    assert narrow.page.get_by_role("link", name="Terms").is_visible()


def test_a_button_opens_and_closes_all_details(opened):
    one = opened("made-up")
    button = one.page.locator("#open-all")
    states = []
    for _ in range(2):
        button.click()
        is_open = one.page.evaluate("[...document.querySelectorAll('section > details')].map((one) => one.open)")
        states.append((set(is_open), button.inner_text()))
    assert states == [({True}, "Close all"), ({False}, "Open all")]


@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_without_javascript_nothing_is_missing(opened, width):
    one = opened("made-up", width, script=False)
    assert one.page.locator(".plot title").count() == 300
    assert not one.page.locator(".tip").is_visible()
    assert not one.page.locator(".hint").is_visible()
    assert not one.page.locator("#open-all").is_visible()
    listed = one.page.get_by_text("The most exposed as a list")
    first = one.page.get_by_text(scatter_plot().listed[0]).last
    assert not first.is_visible()
    listed.click()
    assert first.is_visible()
    one.page.get_by_role("heading", name="Terms").click()
    assert one.page.get_by_text("How far off.").is_visible()
    if width == NARROW:
        one.page.get_by_text("Contents").click()
    assert one.page.get_by_role("link", name="Terms").is_visible()
    one.page.screenshot(path=SCREENSHOTS / f"without-javascript-{width}.png", full_page=True)


def test_what_a_row_is_about_stays_in_view_while_its_table_scrolls(opened):
    one = opened("made-up", NARROW)
    box = one.page.locator(".scroll", has_text="Measure number 8")
    head, last = box.get_by_role("rowheader", name="Ridge"), box.get_by_text("some words about it").first
    before = head.bounding_box()["x"]
    assert not box.evaluate("box => box.scrollLeft")
    box.evaluate("box => { box.scrollLeft = 300 }")
    assert head.bounding_box()["x"] == before
    box.evaluate("box => { box.scrollLeft = box.scrollWidth }")
    assert head.bounding_box()["x"] == before
    assert last.bounding_box()["x"] < NARROW - 20
    # A reader sees both at once.
    assert last.bounding_box()["x"] >= before + head.bounding_box()["width"] - 1
    note, caption = one.page.get_by_text("Small print."), one.page.get_by_text("Below.")
    for text in (note, caption):
        assert text.bounding_box()["width"] <= NARROW


@pytest.mark.parametrize("script", [True, False])
def test_everything_is_on_paper(opened, script):
    one = opened("made-up", script=script)
    one.page.emulate_media(media="print")
    for text in ("How far off.", "not known", "Data set"):
        assert one.page.get_by_text(text, exact=True).first.is_visible()
    assert not one.page.locator("nav").is_visible()
    assert not one.page.locator("#open-all").is_visible()
    one.page.pdf(path=SCREENSHOTS / f"made-up{'' if script else '-without-javascript'}.pdf", format="A4")


def test_details_are_opened_for_the_printer_and_closed_again(opened):
    one = opened("made-up")
    one.page.locator("section > details > summary").first.click()
    states = []
    for event in ("beforeprint", "afterprint"):
        one.page.evaluate("name => dispatchEvent(new Event(name))", event)
        states.append(one.page.evaluate("[...document.querySelectorAll('details')].map((one) => one.open)"))
    assert set(states[0]) == {True}
    assert sum(states[1]) == 1
