"""The site is built without a warning, has no dead link and loads nothing from outside.

The folder of screenshots is kept if ECOP_SCREENSHOTS names one.
"""

import functools
import os
import re
import subprocess
import sys
import threading
import time
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

import chromium

ROOT = Path(__file__).parents[1]
SHOWN = ("index", "tutorial", "examples/index", "examples/highway", "api", "results")


class Page(HTMLParser):
    """Names, links and what is loaded."""

    def __init__(self, file):
        super().__init__()
        self.names, self.links, self.loaded = set(), [], []
        self.feed(file.read_text())

    def handle_starttag(self, tag, attrs):
        have = dict(attrs)
        self.names |= {have[key] for key in ("id", "name") if have.get(key)}
        if tag == "a" and "href" in have:
            self.links.append(have["href"])
        if tag in ("script", "img", "iframe", "source") and have.get("src"):
            self.loaded.append(have["src"])
        if tag == "link" and have.get("rel") in ("stylesheet", "icon", "preconnect"):
            self.loaded.append(have["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_links_lead_somewhere_and_nothing_comes_from_outside(site):
    pages = {file: Page(file) for file in site.rglob("*.html")}
    assert len(pages) > 50
    for file, page in pages.items():
        if file.name == "404.html" or file.is_relative_to(site / "results"):
            continue
        for target in page.loaded:
            assert not re.match(r"(\w+:)?//", target), (file, target)
            assert (file.parent / unquote(target.partition("?")[0])).exists(), target
        for target in page.links:
            if re.match(r"\w+:", target):
                continue
            path, anchor = urldefrag(unquote(target))
            there = (file.parent / path).resolve() if path else file
            there = there / "index.html" if there.is_dir() else there
            assert there.exists(), (file, target)
            if anchor and there in pages and not anchor.startswith("__"):
                assert anchor in pages[there].names, (file, target)


@pytest.fixture
def address(site):
    """The site on the loopback interface."""
    handler = functools.partial(Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format, *args):
        pass


@pytest.mark.slow
@pytest.mark.skipif(chromium.PATH is None, reason="needs chromium")
@pytest.mark.parametrize("width", [1280, 390])
def test_pages_fit_a_screen_and_ask_for_nothing(address, width, tmp_path):
    folder = Path(os.environ.get("ECOP_SCREENSHOTS") or tmp_path)
    browser = chromium.Browser(tmp_path / "profile")
    try:
        for name in SHOWN:
            browser.open(f"{address}/{name}.html", width)
            time.sleep(0.5)  # for what is asked for later
            file = folder / f"{name.replace('/', '-')}-{width}.png"
            browser.picture(file, whole=False)
            assert browser.run("document.documentElement.scrollWidth") <= width, name
            assert not browser.messages, name
            ours = (address, "data:", "blob:")
            assert all(x.startswith(ours) for x in browser.requests), name
        browser.run(SEARCH)
        for _ in range(100):
            found = browser.run(
                "document.querySelectorAll('.md-search-result a').length"
            )
            if found:
                break
            time.sleep(0.1)
        assert found
    finally:
        browser.close()


SEARCH = """{
  const box = document.querySelector("input[name=query]");
  box.focus();
  box.value = "certificate";
  box.dispatchEvent(new Event("keyup", { bubbles: true }));
}"""
