"""After an undo the page knows which photos have no answer, whether they are shown or not."""

from tests.reviewing.page_driver import shown_ids, wait_for

SAVED = "document.getElementById('save').dataset.state === 'check'"


def draw_lasso(page):
    box = page.locator(".map-canvas").bounding_box()
    corners = [(0.02, 0.02), (0.98, 0.02), (0.98, 0.98), (0.02, 0.98), (0.02, 0.05)]
    for step, (x, y) in enumerate(corners):
        page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"], steps=4)
        if step == 0:
            page.mouse.down()
    page.mouse.up()


def test_undo_of_a_group_opens_it_again(open_page, fake_server):
    page = open_page("#view=groups")
    n = len(fake_server.pool.groups()[0]["ids"])
    first = page.locator(".group").first
    page.keyboard.press("Enter")
    wait_for(page, lambda: len(fake_server.pool.answers) == n)
    first.get_by_role("button", name="Done").wait_for()
    page.keyboard.press("u")
    first.get_by_role("button", name=f"All {n} are cat").wait_for()
    assert first.locator(".mark-check:visible").count() == 0


def test_photos_that_are_not_shown_are_confirmed_again_after_an_undo(open_page, fake_server):
    page = open_page("#view=all")
    page.keyboard.press("End")
    wait_for(page, "document.activeElement.itemId === 399")
    page.keyboard.press("Home")
    for _ in range(2):
        page.keyboard.press("Control+a")
        page.keyboard.press("Enter")
        wait_for(page, lambda: len(fake_server.pool.answers) == 400)
        wait_for(page, SAVED)
        page.keyboard.press("u")
        wait_for(page, lambda: not fake_server.pool.answers)
        wait_for(page, SAVED)


def test_enter_after_a_lasso_confirms_the_selection(open_page, fake_server):
    page = open_page("#view=map")
    wait_for(page, lambda: any(path.startswith("/api/points") for path in fake_server.paths))
    page.wait_for_timeout(200)
    draw_lasso(page)
    page.get_by_text("400 photos selected", exact=True).wait_for()
    page.keyboard.press("Enter")
    wait_for(page, lambda: len(fake_server.pool.answers) == 400)
    assert page.locator("dialog[open]").count() == 0


def test_enter_confirms_a_group_without_the_photo_that_was_left_out(open_page, fake_server):
    page = open_page("#view=groups")
    ids = fake_server.pool.groups()[0]["ids"]
    page.locator(".group").first.locator(".group-thumb").nth(2).click()
    page.keyboard.press("Enter")
    wait_for(page, lambda: set(fake_server.pool.answers) == {*ids} - {ids[2]})


def test_enter_is_for_the_photos_after_a_dialog(open_page, fake_server):
    page = open_page("#view=all")
    page.click("#history")
    page.get_by_role("heading", name="History").wait_for()
    page.keyboard.press("Escape")
    wait_for(page, "!document.querySelector('dialog[open]')")
    page.keyboard.press("Enter")
    wait_for(page, lambda: list(fake_server.pool.answers) == [shown_ids(page)[0]])
    assert page.locator("dialog[open]").count() == 0


def test_a_page_of_a_class_counts_photos_that_are_not_shown(open_page, fake_server):
    dogs = [int(i) for i in fake_server.pool.view({"view": "class", "class": "dog"})]
    fake_server.pool.answer("label", dogs[:-50], "dog")  # 50 without an answer come first
    page = open_page("#view=class&class=dog", height=500)
    page.get_by_role("button", name="Confirm the 50 left on this page").click()
    wait_for(page, lambda: set(dogs) <= set(fake_server.pool.answers))
    page.get_by_role("button", name="Previous page").click()
    page.get_by_role("button", name="Page done").wait_for()
