#!/usr/bin/env python3
"""Builds the documentation site from the repository's own Markdown: hack/site.py [DIRECTORY], by default target/site.

packaging/site has mdBook's settings and the order of the pages. Each page stands in the site where it stands in the repository,
so links between pages stay as they are; a link to another file of the repository leads to the forge. Then every link within the
site is looked up, with its anchor: a broken one ends it with 1. mdBook is in TOOLS, by default target/tools.
"""

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

os.chdir(Path(__file__).resolve().parent.parent)
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", "target"))
SITE = (Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET / "site").resolve()
BOOK = TARGET / "site-source"
MDBOOK = Path(os.environ.get("TOOLS", "target/tools")).resolve() / "bin/mdbook"
REPOSITORY = "https://github.com/nodegate/nodegate"
PAGES = re.findall(r"\]\(([^)]+\.md)\)", Path("packaging/site/SUMMARY.md").read_text())


def staged(page):
    """Returns the text of a page for the site."""
    # A note behind a fence is for the tests.
    text = re.sub(r"^( *```\w+) .*$", r"\1", Path(page).read_text(), flags=re.MULTILINE)
    if page.startswith("docs/load-balancers/"):
        text = "\n\n".join(paragraph + named_files(page, paragraph) for paragraph in text.split("\n\n"))
    return re.sub(r"\]\(([^)\s]+)\)", lambda match: f"]({link(page, match[1])})", text)


def named_files(page, paragraph):
    """Returns the load balancers' files that a paragraph links, as blocks below it."""
    names = re.findall(r"\]\((\w+/[\w.-]+\.(?:cfg|conf|yaml)|caddy/Caddyfile)\)", paragraph)
    return "".join(f"\n\n`{name}`:\n\n```\n{(Path(page).parent / name).read_text().rstrip()}\n```" for name in names)


def link(page, target):
    """Returns the target of a link for the site."""
    path, anchor = urldefrag(target)
    if not path or "://" in path:
        return target
    to = os.path.normpath(os.path.join(os.path.dirname(page), path))
    if to in PAGES or to.startswith("docs/images/"):
        # mdBook renames a page of this name and not the links to it.
        return target.replace("README.md", "index.md")
    return f"{REPOSITORY}/{'tree' if os.path.isdir(to) else 'blob'}/main/{to}" + (f"#{anchor}" if anchor else "")


class Html(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, path):
        super().__init__()
        self.links, self.anchors = [], {""}
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        self.links += [value for name, value in attributes if name in ("href", "src") and value]
        self.anchors |= {value for name, value in attributes if name == "id"}


def broken():
    """Returns the links within the site that lead nowhere, and the number of all."""
    html = {str(path.relative_to(SITE)): Html(path) for path in SITE.rglob("*.html")}
    # The links of this page are from the top of the server.
    del html["404.html"]
    inner = [(page, target) for page in html for target in html[page].links if not re.match(r"[a-z]+:", target)]
    wrong = []
    for page, target in inner:
        path, anchor = urldefrag(target)
        to = re.sub(r"(^|/)$", r"\1index.html", unquote(urljoin(page, path)))
        if not (SITE / to).is_file() or (to in html and unquote(anchor) not in html[to].anchors):
            wrong.append(f"{page}: {target} leads nowhere")
    return wrong, len(inner)


shutil.rmtree(BOOK, ignore_errors=True)
shutil.rmtree(SITE, ignore_errors=True)
shutil.copytree("packaging/site", BOOK)
shutil.copytree("docs/images", BOOK / "src/docs/images")
(BOOK / "SUMMARY.md").rename(BOOK / "src/SUMMARY.md")
(BOOK / "theme").mkdir()
shutil.copy("docs/images/icon.svg", BOOK / "theme/favicon.svg")
for page in PAGES:
    (BOOK / "src" / page).parent.mkdir(parents=True, exist_ok=True)
    (BOOK / "src" / page).write_text(staged(page))
built = subprocess.run([MDBOOK, "build", "--dest-dir", SITE, BOOK], capture_output=True, text=True)
if built.returncode != 0 or "WARN" in built.stderr:
    sys.exit(built.stderr)
wrong, links = broken()
if wrong or not list(SITE.glob("searchindex*.js")):
    sys.exit("\n".join(wrong) or "there is no search")
print(f"{SITE}: {len(PAGES)} pages, {links} links, all of them lead somewhere")
