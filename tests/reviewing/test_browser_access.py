"""The access control with a real browser, which decides itself what it sends and keeps."""

import http.server
import threading
from contextlib import contextmanager

import pytest

PAGE = """<!doctype html><title>{title}</title><body></body>"""


@contextmanager
def other_site(content):
    """A page of another program of this machine."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(content.encode())

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def page(browser):
    """A page in a browser without cookies."""
    context = browser.new_context()
    yield context.new_page()
    context.close()


def test_the_page_opens_and_works(page, opened, session):
    page.goto(opened.url)
    assert page.title() == "the page"
    assert "token" not in page.url
    post = """async () => (await fetch("/api/undo", {method: "POST", body: "{}",
              headers: {"Content-Type": "application/json"}})).status"""
    assert page.evaluate(post) == 200
    assert len(session.calls) == 1
    first = """() => new Promise(done => {
        const stream = new EventSource("/api/events?since=0");
        stream.addEventListener("entry", event => { stream.close(); done(event.data); }); })"""
    assert page.evaluate(first) == '{"n":1,"action":"undo"}'
    width = """async () => { const image = new Image(); image.src = "/image/0?size=96";
               await image.decode(); return image.naturalWidth; }"""
    assert page.evaluate(width) == 96
    assert page.evaluate("document.cookie") == ""


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])  # of the same site, of another one
def test_a_link_on_another_page_leads_to_the_review(host, page, opened):
    """As in a notebook, which is served at another port and perhaps under another name."""
    link = f'<a target="_blank" rel="noopener noreferrer" href="{opened.url}">open</a>'
    with other_site(PAGE.format(title="notebook") + link) as port:
        page.goto(f"http://{host}:{port}/")
        with page.context.expect_page() as found:
            page.click("a")
        review = found.value
        review.wait_for_function("document.title === 'the page'")
        assert "token" not in review.url


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_another_page_of_this_machine_cannot_use_the_review(host, page, opened, session):
    page.goto(opened.url)  # the browser has the cookie now
    base = opened.url.partition("?")[0]
    with other_site(PAGE.format(title="other")) as port:
        page.goto(f"http://{host}:{port}/")
        for body in ('{"method": "GET"}', '{"method": "POST", "body": "{}", "mode": "no-cors"}'):
            fetch = f"""async () => {{ try {{
                const reply = await fetch("{base}api/undo",
                    {{...{body}, credentials: "include"}});
                return reply.type === "opaque" ? "" : await reply.text();
            }} catch {{ return ""; }} }}"""
            assert page.evaluate(fetch) == ""
        image = f"""() => new Promise(done => {{ const image = new Image();
            image.onload = () => done("shown"); image.onerror = () => done("refused");
            image.src = "{base}image/0?size=96"; }})"""
        assert page.evaluate(image) == "refused"
    assert not session.calls
