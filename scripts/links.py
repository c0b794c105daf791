#!/usr/bin/env python3
"""Checks the links of the rendered documentation (target/doc) and of the Markdown pages of the repository.

Prints each link that leads nowhere: to no file, to no heading or item of its page, or by a name that the page does not
define; and each file that a Markdown page names and that is not there. Links to other hosts are not followed. `cargo doc` comes first; only the pages of this workspace are read.
"""

import html
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent
RENDERED = ROOT / "target/doc"
NAMED_FILE = re.compile(r"`((?:src|crates|docs|examples|tests|benches|scripts)/[\w./-]+)")
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)


def main():
    pages = rendered_pages()
    if not pages:
        sys.exit("there is no documentation in target/doc: run `cargo doc` first")
    markdown = markdown_pages()
    dead = [problem for page in pages for problem in dead_in_rendered(page)]
    dead += [problem for page in markdown for problem in dead_in_markdown(page)]
    for problem in dead:
        print(problem)
    print(f"{len(pages)} rendered and {len(markdown)} Markdown pages: {len(dead)} dead links")
    sys.exit(bool(dead))


def rendered_pages():
    """Pages of the crates of this workspace; those of the sources have no links of ours."""
    return sorted(page for crate in RENDERED.glob("wakegraph*") for page in crate.rglob("*.html"))


def dead_in_rendered(page):
    # Scripts build links of their own, and what stands below blanket implementations is the text of other crates.
    text = re.sub(r"<script.*?</script>", "", page.read_text(), flags=re.DOTALL)
    text = text.partition('<h2 id="blanket-implementations"')[0]
    links = re.findall(r'\b(?:href|src)="([^"]*)"', text) + re.findall(r'content="0;URL=([^"]*)"', text)
    for link in dict.fromkeys(map(html.unescape, links)):
        if not ELSEWHERE.match(link) and not leads_somewhere(page, link):
            yield f"{page.relative_to(ROOT)}: {link}"


def markdown_pages():
    """Pages under version control. Definitions for rustdoc, in `src`, name items instead of files."""
    names = subprocess.run(["git", "ls-files", "-z", "--", "*.md", ":!src"], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    return [ROOT / name for name in names.stdout.decode().split("\0") if name]


def dead_in_markdown(page):
    # `NAME` stands for what the reader chooses; tests are named without the ending of their file.
    for name in dict.fromkeys(NAMED_FILE.findall(page.read_text())):
        if "NAME" not in name and not any((ROOT / (name + ending)).exists() for ending in ("", ".rs")):
            yield f"{page.relative_to(ROOT)}: there is no {name}"
    text = prose(page.read_text())
    defined = dict(re.findall(r"^ {0,3}\[([^\]]+)\]:\s+(\S+)", text, re.MULTILINE))
    used = re.findall(r"\]\[([^\]]+)\]", text)
    for name in dict.fromkeys(used):
        if name not in defined:
            yield f"{page.relative_to(ROOT)}: [{name}] is not defined"
    for name in defined:
        if name not in used and f"[{name}]" not in re.sub(r"^ *\[[^\]]+\]:.*$", "", text, flags=re.MULTILINE):
            yield f"{page.relative_to(ROOT)}: [{name}] is not used"
    inline = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'<(?:img|a)[^>]* (?:src|href)="([^"]*)"', text)
    for link in dict.fromkeys(inline + list(defined.values())):
        if not ELSEWHERE.match(link) and not leads_somewhere(page, link):
            yield f"{page.relative_to(ROOT)}: {link}"


def leads_somewhere(page, link):
    path, _, anchor = link.partition("#")
    target = (page.parent / unquote(path.partition("?")[0])).resolve() if path else page
    if not target.exists():
        return False
    if not anchor or target.suffix not in (".html", ".md"):
        return True
    if (RENDERED / "src") in target.parents:
        return re.fullmatch(r"\d+(-\d+)?", anchor) is not None
    return not {anchor, unquote(anchor)}.isdisjoint(anchors(target))


@cache
def anchors(page):
    text = page.read_text()
    if page.suffix == ".html":
        moved = re.search(r'content="0;URL=([^"]*)"', text)
        if moved:
            return anchors((page.parent / moved[1]).resolve())
        return set(map(html.unescape, re.findall(r'\bid="([^"]*)"', text)))
    found = {}
    for heading in re.findall(r"^#{1,6} +(.*?) *#*$", prose(text, keep_code=True), re.MULTILINE):
        slug = re.sub(r"\[([^\]]*)\](\([^)]*\)|\[[^\]]*\])", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", slug).replace(" ", "-")
        found[slug] = found.get(slug, -1) + 1
        if found[slug]:
            found[f"{slug}-{found[slug]}"] = 0
    return set(found)


def prose(text, keep_code=False):
    """Takes out blocks of code, where brackets are no links, and code inside lines."""
    text = re.sub(r"^( *)(```+|~~~+).*?^\1\2 *$", "", text, flags=re.MULTILINE | re.DOTALL)
    return text if keep_code else re.sub(r"(?<!\[)(`+)[^`\n]+?\1(?!\])", "", text)


if __name__ == "__main__":
    main()
