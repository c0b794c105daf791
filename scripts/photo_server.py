"""Tries the example photo_server in a browser: see photo_server.sh.

python photo_server.py SERVER DEVICE DIRECTORY
"""

import base64
import io
import os
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent


def developed(picture):
    """What the server should make of a picture, by another implementation."""
    photo = np.asarray(picture.convert("RGB")).astype(np.int64)
    height, width, _ = photo.shape
    around = np.pad(photo, ((1, 1), (1, 1), (0, 0)), mode="edge")
    total = sum(around[y : y + height, x : x + width] for y in range(3) for x in range(3))
    # Divided towards zero; what is below zero becomes zero in any case.
    sharp = np.clip((17 * photo - total) // 8, 0, 255)
    luma = (2126 * sharp[..., 0] + 7152 * sharp[..., 1] + 722 * sharp[..., 2]) // 10000
    darker = np.cumsum(np.bincount(luma.ravel(), minlength=256))
    spread = (np.arange(256) + darker * 255 // luma.size) // 2
    warmth = spread * (255 - spread) // 255 // 3
    curves = [spread + warmth, spread, spread - warmth]
    return np.stack([curves[c][sharp[..., c]] for c in range(3)], axis=-1).astype(np.uint8)


def picture_file(picture, form):
    file = io.BytesIO()
    picture.save(file, form)
    return file.getvalue()


def get(url):
    try:
        with urllib.request.urlopen(url) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def post(url, body):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data=body, method="POST")) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


class Page:
    """The page as somebody uses it."""

    def __init__(self, browser, url):
        self.page = browser.new_page(viewport={"width": 800, "height": 800})
        self.problems = []
        self.page.on("pageerror", lambda error: self.problems.append(f"script: {error}"))
        is_own = lambda request: request.url.startswith((url, "blob:"))
        self.page.on("request", lambda request: is_own(request) or self.problems.append(f"asks {request.url}"))
        self.page.goto(url)

    def result(self):
        """Waits for the developed photo."""
        self.page.wait_for_function("document.getElementById('message').textContent.startsWith('developed in')")
        read = """async () => {
            const bytes = new Uint8Array(await (await fetch(document.getElementById('result').src)).arrayBuffer());
            return btoa(Array.from(bytes, byte => String.fromCharCode(byte)).join(''));
        }"""
        return np.asarray(Image.open(io.BytesIO(base64.b64decode(self.page.evaluate(read)))))

    def error(self):
        """Waits for the message of a failure."""
        self.page.wait_for_selector("#message.error")
        return self.page.text_content("#message")

    def choose(self, name, body):
        self.page.set_input_files("#file", {"name": name, "mimeType": "application/octet-stream", "buffer": body})

    def drop(self, body):
        transfer = self.page.evaluate_handle(
            """base64 => {
                const bytes = Uint8Array.from(atob(base64), char => char.charCodeAt(0));
                const transfer = new DataTransfer();
                transfer.items.add(new File([bytes], 'dropped.png', { type: 'image/png' }));
                return transfer;
            }""",
            base64.b64encode(body).decode(),
        )
        self.page.dispatch_event("#drop", "drop", {"dataTransfer": transfer})

    def until(self, figure, least):
        """Waits until a figure is at least so much."""
        self.page.wait_for_function(
            """([figure, least]) => [...document.querySelectorAll('#figures dt')].some(
                dt => dt.textContent === figure && parseFloat(dt.nextSibling.textContent) >= least)""",
            arg=[figure, least],
        )


def use_page(page):
    sample = Image.open(ROOT / "examples/data/astronaut.png")
    page.page.click("#sample")
    assert np.array_equal(page.result(), developed(sample)), "the sample"
    page.until("answered", 1)

    colours = np.random.default_rng(1).integers(0, 256, (123, 77, 3), dtype=np.uint8)
    odd = Image.fromarray(colours)
    page.choose("odd.png", picture_file(odd, "PNG"))
    assert np.array_equal(page.result(), developed(odd)), "a file that is chosen"
    page.drop(picture_file(odd.rotate(90, expand=True), "PNG"))
    assert np.array_equal(page.result(), developed(odd.rotate(90, expand=True))), "a file that is dropped"
    page.choose("large.jpeg", picture_file(odd.resize((4000, 1000)), "JPEG"))
    assert page.result().shape == (720, 2880, 3), "a file that is scaled down"

    page.choose("notes.txt", b"these are notes")
    assert page.error().startswith("400: this is no picture"), page.error()
    page.choose("huge.png", bytes(17 << 20))
    page.page.wait_for_function("!document.getElementById('message').textContent.startsWith('400')")
    assert page.error().startswith("413: the upload is larger"), page.error()

    page.page.click("#sample")
    page.result()
    page.page.click("#burst")
    page.until("in flight", 1)
    page.page.wait_for_function("document.getElementById('message').textContent === '60 of 60 developed'")
    page.until("answered", 65)
    page.until("p99", 0.1)
    assert page.page.locator("#figures svg rect.host").count() == 3, "host tasks in the timeline"
    assert page.page.locator("#figures svg rect.device").count() > 5, "commands in the timeline"
    assert not page.problems, page.problems


def overload(url):
    """More at once than slots and places in the queue: all are answered, some are refused at once."""
    sample = (ROOT / "examples/data/astronaut.png").read_bytes()
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(post(f"{url}/photo", sample))) for _ in range(150)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    statuses = [status for status, _ in answers]
    assert set(statuses) == {200, 503}, statuses
    assert all(b"queue is full" in body for status, body in answers if status == 503)
    assert len({body for status, body in answers if status == 200}) == 1, "all are the same photo"
    return statuses.count(503)


def probe(url, device):
    assert get(f"{url}/livez") == (200, "alive")
    status, health = get(f"{url}/readyz")
    assert status == 200 and health.endswith(": healthy"), health
    _, metrics = get(f"{url}/metrics")
    names = re.findall(r"^\| `(\w+)`", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE)
    assert names and all(f"# HELP {name} " in metrics for name in names), metrics
    assert re.search(rf'wakegraph_runs_total{{device="{device}[^"]*"}} \d\d+', metrics), metrics
    assert re.search(r'wakegraph_requests_refused_total\{.*\} [1-9]', metrics), metrics


def main(server, device, directory):
    process = subprocess.Popen([server, "--device", device, "--port", "0"], stdout=subprocess.PIPE, text=True)
    try:
        url = process.stdout.readline().split()[-1]
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", chromium_sandbox=os.getuid() != 0)
            page = Page(browser, url)
            use_page(page)
            page.page.screenshot(path=f"{directory}/page.png", full_page=True)
            browser.close()
        refused = overload(url)
        probe(url, device)
    finally:
        process.kill()
        process.wait()
    print(f"{device}: the page, its photos, errors and figures are as they should be; {refused} of 150 refused")


if __name__ == "__main__":
    main(*sys.argv[1:])
