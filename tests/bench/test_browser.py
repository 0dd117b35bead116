"""The report in a real browser: drawn, usable, silent, and nothing fetched."""

import json
import shutil
import tempfile
from pathlib import Path

import pytest
from made_up import make_results

import chromium
from ecop import files
from ecop.report import write as report

pytestmark = pytest.mark.skipif(
    chromium.PATH is None, reason="needs Debian's package chromium"
)
CURVES = "document.querySelectorAll('#curves path.curve').length"


@pytest.fixture(scope="module")
def browser():
    profile = tempfile.mkdtemp()
    browser = chromium.Browser(Path(profile))
    yield browser
    browser.close()
    shutil.rmtree(profile, ignore_errors=True)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made-up")
    make_results(folder / "results", suites=("table1", "navigation"))
    return report.write(folder / "results", folder / "report.html", "html")[0]


def choose(browser, name, value):
    browser.run(
        f"{{const s = document.getElementById('{name}'); s.value = '{value}';"
        "s.dispatchEvent(new Event('change'))}"
    )


def assert_silent(browser, file):
    assert browser.messages == []
    away = [url for url in browser.requests if not url.startswith("data:")]
    assert away == [file.resolve().as_uri()]


def test_charts_and_controls(browser, file):
    browser.open(file)
    assert browser.run("document.getElementById('section').value") == "table1"
    first = browser.run("document.getElementById('task').value")
    assert (
        browser.run(CURVES) == 2 * 13
    )  # reward and cost of 12 algorithms, e-COP twice
    assert browser.run("document.querySelectorAll('#curves .limit').length") == 1
    assert browser.run("document.querySelectorAll('#scatter path.mark').length") > 12
    assert browser.run("document.querySelectorAll('#violations svg').length") == 1
    names = browser.run(
        "[...document.querySelectorAll('#violations text')].map(t => t.textContent)"
    )
    assert "e-COP" in names
    assert "PPO" not in names
    choose(browser, "task", "Navigation")
    assert first != "Navigation"
    assert browser.run(CURVES) == 3 * 13
    choose(browser, "mode", "runs")
    assert browser.run(CURVES) == 3 * 13 * 3
    browser.run("document.querySelector('#seeds input').click()")
    assert browser.run(CURVES) == 3 * 13 * 2
    browser.run("document.querySelector('#arms input').click()")
    assert browser.run(CURVES) == 3 * 12 * 2
    browser.run("document.getElementById('none').click()")
    assert browser.run(CURVES) == 0
    assert "Nothing is chosen" in browser.run("document.body.innerText")
    browser.run("document.getElementById('all').click()")
    choose(browser, "section", "navigation")
    assert browser.run("document.querySelectorAll('#arms input').length") == 3
    finite = "[...document.querySelectorAll('svg *')].every(e => " + (
        "[...e.attributes].every(a => !/NaN|Infinity|undefined/.test(a.value)))"
    )
    assert browser.run(finite)
    assert_silent(browser, file)


def test_the_page_answers_first(browser, file):
    browser.open(file)
    top = "document.querySelector('{}').getBoundingClientRect().top"
    places = [browser.run(top.format(x)) for x in (".lead", "#overall svg", "#table1")]
    assert 0 < places[0] < places[1] < places[2]
    assert places[0] < 200
    words = browser.run("document.querySelector('.lead').innerText")
    assert "e-COP scores" in words
    assert "the best of the others is" in words
    names = "[...document.querySelectorAll('#overall text')].map(t => t.textContent)"
    assert {"e-COP", "e-COP (paper)", "PPO-L"} <= set(browser.run(names))
    # Versions and their hashes stand at the end.
    assert "commit" not in browser.run("document.querySelector('header').innerText")
    assert "commit" in browser.run("document.querySelector('#setup').innerText")


def test_table_1_keeps_its_first_columns(browser, file):
    browser.open(file, width=390)
    browser.run("document.querySelector('#table1 .scroll').scrollLeft = 300")
    cell = "document.querySelector('#table1 tbody tr').children[{}]"
    edges = [
        browser.run(cell.format(i) + ".getBoundingClientRect().left") for i in range(3)
    ]
    frame = "document.querySelector('#table1 .scroll').getBoundingClientRect().left"
    left = browser.run(frame)
    assert left <= edges[0] < edges[1] < left + 200
    assert edges[2] < left


def test_ppo_stretches_no_axis_of_a_cost(browser, file):
    """What lies beyond is cut off; the last tick of the axis is that of the others."""
    most = (
        "Math.max(...[...document.querySelectorAll('#curves svg[role=img]')[1]"
        ".querySelectorAll('text')].map(t => +t.textContent).filter(Number.isFinite)"
        ".filter(v => v < 1000))"
    )
    browser.open(file)
    assert browser.run(most) < 100
    assert browser.run("document.querySelectorAll('#curves svg.inside').length") == 2
    keys = "[...document.querySelectorAll('#curves-keys li')].map(e => e.textContent)"
    assert len(set(browser.run(keys))) == 13


def test_values_can_be_read_by_mouse_and_keyboard(browser, file):
    browser.open(file)
    browser.run("document.querySelector('#curves svg').focus()")
    browser.key("ArrowLeft")
    tip = "document.querySelector('#curves .tip').innerText"
    assert "e-COP" in browser.run(tip)
    before = browser.run(tip)
    browser.key("ArrowLeft")
    assert browser.run(tip) != before
    browser.key("Escape")
    hidden = "document.querySelector('#curves .tip').hidden"
    assert browser.run(hidden)
    browser.run("document.getElementById('curves').scrollIntoView({block: 'center'})")
    box = "document.querySelector('#curves svg').getBoundingClientRect()"
    x, y = browser.run(f"[{box}.left + {box}.width / 2, {box}.top + {box}.height / 2]")
    browser.move(x, y)
    assert not browser.run(hidden)
    # Every control has a name, and can be reached by the tab key.
    unnamed = (
        "[...document.querySelectorAll('select, input, button')].filter(e => "
        "!(e.labels && e.labels.length) && !e.textContent.trim()).length"
    )
    assert browser.run(unnamed) == 0
    silent = "[...document.querySelectorAll('svg[role=img]')].filter(e => "
    assert browser.run(silent + "!e.getAttribute('aria-label')).length") == 0
    assert_silent(browser, file)


def test_light_dark_and_phone(browser, file, tmp_path):
    back = "getComputedStyle(document.body).backgroundColor"
    for dark, colour in ((False, "rgb(255, 255, 255)"), (True, "rgb(18, 24, 29)")):
        browser.open(file, dark=dark)
        assert browser.run(back) == colour
    browser.run("document.getElementById('theme').click()")
    assert browser.run(back) == "rgb(255, 255, 255)"
    browser.open(file, width=360)
    assert browser.run("document.documentElement.scrollWidth") == 360
    assert browser.run(CURVES) == 2 * 13
    browser.picture(tmp_path / "phone.png")
    assert (tmp_path / "phone.png").stat().st_size > 10_000
    assert_silent(browser, file)


def test_markup_in_names_does_not_run(browser, tmp_path):
    make_results(tmp_path / "results", suites=("navigation",))
    evil = "</script><img src=x onerror=console.error(1)>"
    for part in ("plans", "cells"):
        for path in (tmp_path / "results" / part).glob("*.json"):
            text = path.read_text().replace("C1 only", evil).replace("cost 1", evil)
            document = json.loads(text)
            document.pop("crc32")
            path.write_text(files.sealed(document))
    file, _ = report.write(tmp_path / "results", tmp_path / "report.html", "html")
    browser.open(file)
    assert "onerror" in browser.run("document.getElementById('arms').innerText")
    assert browser.run(CURVES) == 3 * 3
    assert_silent(browser, file)
