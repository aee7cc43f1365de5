"""The audit on the page: only a photo that is seen gets an answer."""

from tests.reviewing.fake_pool import NONE
from tests.reviewing.page_driver import answers, wait_for

SEEN = ".audit .stage-image.loaded"


def open_audit(page):
    page.get_by_role("button", name="Audit: about 36 more").click()
    page.wait_for_selector(SEEN)


def asked_number(page):
    source = page.locator(".audit .stage-image").get_attribute("src")
    return int(source.removeprefix("/image/").partition("?")[0])


def test_a_photo_that_is_not_seen_gets_no_answer(open_page, fake_server):
    page = open_page()
    open_audit(page)
    expected = fake_server.pool.next_audit()["next"]
    fake_server.stop()
    page.keyboard.press("1")
    for _ in range(6):  # those that were loaded ahead may be answered, no other
        page.wait_for_timeout(60)
        page.keyboard.press("x")
    page.get_by_text("Waiting for the server: the picture is not here yet.").wait_for()
    assert page.get_by_text("cannot be shown").count() == 0
    asked = asked_number(page)
    assert asked in expected[:4]
    page.locator(".audit-loss", has_text="The server does not answer.").wait_for()
    fake_server.start()
    page.wait_for_selector(SEEN)
    assert asked_number(page) == asked
    wait_for(page, "document.querySelector('.audit-loss').hidden", 8)
    page.keyboard.press("2")
    wait_for(page, lambda: fake_server.pool.audited.get(asked) == "dog", 8)
    assert set(fake_server.pool.audited) == {asked, *(b["ids"][0] for b in answers(fake_server))}


def test_only_the_server_says_that_a_picture_cannot_be_shown(open_page, fake_server):
    seen_before = fake_server.pool.next_audit()["next"]  # the browser may have kept pictures
    fake_server.pool.answer("label", [fake_server.pool.next_audit()["id"], *seen_before], "cat")
    page = open_page()
    broken = fake_server.pool.next_audit()["id"]
    fake_server.pool.without_picture = {broken}
    page.get_by_role("button", name="Audit: about 36 more").click()
    page.get_by_text("This picture cannot be shown.").wait_for()
    page.keyboard.press("x")
    wait_for(page, lambda: fake_server.pool.audited == {broken: NONE})


def test_undo_asks_for_the_last_photo_again(open_page, fake_server):
    page = open_page()
    open_audit(page)
    asked = []
    fake_server.refuse = True  # no answer is saved: all of them wait
    for key in "1234":
        page.wait_for_selector(SEEN)
        asked.append(asked_number(page))
        page.keyboard.press(key)
    page.locator(".audit-progress", has_text="4 answered").wait_for()
    page.keyboard.press("u")
    page.wait_for_selector(SEEN)
    assert asked_number(page) == asked[3]
    page.locator(".audit-progress", has_text="3 answered").wait_for()
    page.keyboard.press("x")
    fake_server.refuse = False
    expected = dict(zip(asked, ["cat", "dog", "horse", NONE], strict=True))
    wait_for(page, lambda: fake_server.pool.audited == expected, 8)
    page.locator(".audit-progress", has_text="4 answered").wait_for()


def test_the_audit_says_that_the_goal_is_reached(open_page, fake_server):
    page = open_page()
    open_audit(page)
    assert page.get_by_role("button", name="Leave and finish").count() == 0
    fake_server.pool.set_goal(0.55)
    page.get_by_role("button", name="Leave and finish").click()
    page.get_by_role("heading", name="Finish").wait_for()
