"""The page and its server: answers that wait, other windows, conflicts, modes of a review."""

from tests.reviewing.fake_pool import NONE
from tests.reviewing.page_driver import answers, focused_id, shown_ids, wait_for


def test_answers_wait_for_a_server_that_stopped(open_page, fake_server):
    page = open_page()
    first, second, third = shown_ids(page)[:3]
    fake_server.stop()
    page.keyboard.press("1")
    page.keyboard.press("2")
    page.keyboard.press("3")
    page.keyboard.press("u")  # the third was not sent: it is taken back here
    banner = page.get_by_role("alert").filter(has_text="2 answers are kept here")
    banner.wait_for()
    assert page.locator(".mark-unsaved").count() == 2
    page.get_by_role("button", name="Show them").click()
    assert page.locator(".unsaved-list li").all_inner_texts() == ["1 photo: cat", "1 photo: dog"]
    page.keyboard.press("Escape")
    fake_server.start()
    page.get_by_role("button", name="Try now").click()
    page.get_by_text("All answers are saved.").wait_for()
    page.get_by_text("Reconnected to the server.").wait_for()
    assert fake_server.pool.answers == {first: "cat", second: "dog"}
    assert third not in fake_server.pool.answers
    wait_for(page, "document.getElementById('banner').hidden")


def test_unsaved_answers_survive_a_reload(open_page, fake_server):
    page = open_page()
    first = shown_ids(page)[0]
    fake_server.refuse = True  # the server is there, and cannot save
    page.keyboard.press("1")
    page.get_by_text("1 not saved").wait_for()
    fake_server.refuse = False
    page.reload()
    wait_for(page, lambda: fake_server.pool.answers == {first: "cat"})


def test_an_answer_that_arrived_is_not_sent_again(open_page, fake_server):
    page = open_page()
    fake_server.lose_replies = True  # saved, but the connection breaks before the page hears of it
    page.keyboard.press("1")
    wait_for(page, lambda: len(fake_server.pool.log) == 1)
    page.get_by_text("1 not saved").wait_for()
    fake_server.lose_replies = False
    wait_for(page, "document.getElementById('save').dataset.state === 'check'")
    assert len(fake_server.pool.log) == 1


def test_two_windows_see_each_other(open_page, fake_server):
    page, other = open_page("#view=all"), open_page("#view=all")
    page.keyboard.press("2")
    wait_for(other, "document.querySelector('.cell').classList.contains('answered')")
    assert "dog" in other.locator(".cell").first.get_attribute("aria-label")


def test_a_conflict_shows_both_answers(open_page, fake_server):
    page = open_page("#view=all")
    fake_server.hold_events = True
    fake_server.pool.answer("label", [0], "ship", client="other")
    page.keyboard.press("Control+a")
    page.keyboard.press("Escape")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("1")
    page.get_by_role("heading", name="Someone else answered differently").wait_for()
    wait_for(page, lambda: fake_server.pool.answers.get(1) == "cat")
    assert fake_server.pool.answers[0] == "ship"
    assert page.get_by_label("Theirs: ship").is_checked()
    page.get_by_role("button", name="Use mine").click()
    wait_for(page, lambda: fake_server.pool.answers[0] == "cat")
    assert answers(fake_server)[-1]["replace"] is True
    assert [body["ids"] for body in answers(fake_server)] == [[0, 1], [1], [0]]


def test_solving_again_keeps_what_is_on_the_screen(open_page, fake_server):
    page = open_page("#view=doubtful")
    before = shown_ids(page)[:8]
    hidden = int(fake_server.pool.view({"view": "doubtful"})[300])
    fake_server.pool.confidence[hidden] = 0.0
    fake_server.pool.solve_again(before[:2])
    page.get_by_role("button", name="2 labels changed").wait_for()
    wait_for(page, "document.querySelectorAll('.mark-changed').length === 2")
    assert shown_ids(page)[:8] == before
    page.keyboard.press("r")
    wait_for(page, f"document.querySelector('.cell').itemId === {hidden}")


def test_a_page_of_a_class_is_confirmed(open_page, fake_server):
    page = open_page("#view=class&class=dog")
    dogs = [int(i) for i in fake_server.pool.view({"view": "class", "class": "dog"})]
    page.keyboard.press("4")
    page.get_by_role("button", name="Confirm the 59 left on this page").click()
    wait_for(page, lambda: len(fake_server.pool.answers) == 60)
    assert fake_server.pool.answers[dogs[0]] == "ship"
    assert {fake_server.pool.answers[i] for i in dogs[1:60]} == {"dog"}
    page.get_by_text("Page 2 of 2").wait_for()
    assert shown_ids(page)[0] == dogs[60]


def test_a_group_is_answered_at_once(open_page, fake_server):
    page = open_page("#view=groups")
    first = fake_server.pool.groups()[0]["ids"]
    page.locator(".group").first.locator(".group-thumb").nth(1).click()
    page.get_by_role("button", name=f"All {len(first) - 1} are cat").click()
    wait_for(page, lambda: len(fake_server.pool.answers) == len(first) - 1)
    assert first[1] not in fake_server.pool.answers
    page.keyboard.press("2")
    wait_for(page, lambda: len(fake_server.pool.log) == 2)
    assert answers(fake_server)[-1]["label"] == "dog"


def test_a_lasso_on_the_map_is_answered(open_page, fake_server):
    page = open_page("#view=map")
    box = page.locator(".map-canvas").bounding_box()
    place = [(0.02, 0.02), (0.98, 0.02), (0.98, 0.98), (0.02, 0.98), (0.02, 0.05)]
    wait_for(page, lambda: any(path.startswith("/api/points") for path in fake_server.paths))
    page.wait_for_timeout(200)
    for step, (x, y) in enumerate(place):
        page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"], steps=4)
        if step == 0:
            page.mouse.down()
    page.mouse.up()
    page.get_by_text("400 photos selected", exact=True).wait_for()
    page.keyboard.press("x")
    wait_for(page, lambda: len(fake_server.pool.answers) == 400)
    assert set(fake_server.pool.answers.values()) == {NONE}
    page.keyboard.press("u")
    wait_for(page, lambda: not fake_server.pool.answers)


def test_the_audit_is_blind(open_page, fake_server):
    page = open_page()
    page.get_by_role("button", name="Audit: about 36 more").click()
    asked = fake_server.pool.next_audit()
    page.wait_for_selector(".audit .stage-image.loaded")
    text = page.locator("#audit").inner_text()
    assert "%" not in text.replace("95%", "")
    assert fake_server.pool.name(asked["id"]) not in text
    buttons = page.locator(".audit-classes .button-text").all_inner_texts()
    assert buttons == sorted(buttons)
    page.keyboard.press("2")
    page.keyboard.press("s")
    page.wait_for_selector(".audit .stage-image.loaded")
    page.keyboard.press("x")
    wait_for(page, lambda: len(fake_server.pool.audited) == 2)
    assert fake_server.pool.audited == {asked["id"]: "dog", asked["next"][0]: NONE}
    page.keyboard.press("u")
    wait_for(page, lambda: len(fake_server.pool.audited) == 1)
    wait_for(page, f"document.querySelector('.audit img').src.includes('/{asked['next'][0]}?')")
    page.keyboard.press("Escape")
    assert focused_id(page) is not None


def test_classes_history_and_finish(open_page, fake_server):
    page = open_page()
    page.get_by_role("button", name="Add a class").click()
    page.get_by_label("Name of the new class").fill("cat")
    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_text("There is a class cat already.").wait_for()
    page.get_by_label("Name of the new class").fill("snail")
    page.get_by_label("Give it to the photo with the focus").check()
    page.get_by_role("button", name="Add", exact=True).click()
    wait_for(page, lambda: list(fake_server.pool.answers.values()) == ["snail"])
    keys = page.locator(".class-row kbd").all_inner_texts()
    assert keys == ["1", "2", "3", "4", "5"]
    page.get_by_role("button", name="History").click()
    page.locator(".entry", has_text="class snail added").get_by_role("button").click()
    page.get_by_role("button", name="Undo them").click()
    wait_for(page, lambda: not fake_server.pool.answers)
    assert "snail" in fake_server.pool.classes
    page.get_by_role("button", name="Finish").click()
    page.get_by_label("Label Studio").check()
    page.get_by_role("button", name="Write the files").click()
    page.get_by_text("At least 95.3 % of the labels are right").first.wait_for()
    assert fake_server.posted[-1][1]["exports"] == ["imagefolder", "label-studio"]


def test_errors_are_sentences(open_page, fake_server):
    page = open_page()
    page.keyboard.press("u")
    page.get_by_role("alert").filter(has_text="There is nothing to undo.").wait_for()


def test_the_goal_is_set(open_page, fake_server):
    page = open_page()
    goal = page.get_by_label("Goal")
    warning = page.get_by_role("alert").filter(has_text="The goal is a share")
    goal.fill("120")
    goal.press("Enter")
    warning.wait_for()
    assert fake_server.pool.goal == 0.95
    goal.fill("100")
    goal.press("Enter")
    wait_for(page, lambda: fake_server.pool.goal == 1)
    assert warning.count() == 0


def test_a_refused_answer_is_not_a_lost_server(open_page, fake_server):
    page = open_page("#view=all")
    fake_server.refuse = True
    page.keyboard.press("1")
    page.get_by_text("1 not saved").wait_for()
    fake_server.hold_events = True
    fake_server.pool.answer("label", [0], "ship", client="other")
    fake_server.refuse = False
    page.get_by_role("heading", name="Someone else answered differently").wait_for()
    page.locator("#save", has_text="Saved").wait_for()
