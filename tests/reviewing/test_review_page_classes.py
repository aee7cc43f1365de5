"""Classes on the page: their colours, their pages, and groups after a change of names."""

from tests.reviewing.fake_pool import FakePool
from tests.reviewing.page_driver import wait_for

COLOURS = """Object.fromEntries([...document.querySelectorAll(".class-row")].map((row) =>
    [row.dataset.name, row.querySelector(".swatch").style.background]))"""


def test_colours_do_not_depend_on_the_order_of_the_classes(open_page, fake_server):
    names = ("cat", "dog", "horse", "ship", "owl", "fox")
    fake_server.renew(FakePool(40, names))
    first = open_page().evaluate(COLOURS)
    assert len(set(first.values())) == len(names)
    fake_server.renew(FakePool(40, names[::-1]))
    assert open_page().evaluate(COLOURS) == first


def test_a_class_that_is_renamed_keeps_its_colour_and_groups_its_name(open_page, fake_server):
    page = open_page("#view=groups")
    before = page.evaluate(COLOURS)
    page.get_by_role("button", name="Rename or merge cat").click()
    page.get_by_label("New name").fill("kitten")
    page.get_by_role("button", name="Rename", exact=True).click()
    page.locator(".group-head strong", has_text="kitten").first.wait_for()
    assert page.locator(".group-head", has_text="cat").count() == 0
    assert page.evaluate(COLOURS)["kitten"] == before["cat"]


def test_after_the_last_page_comes_the_next_class(open_page, fake_server):
    fake_server.renew(FakePool(40, ("cat", "dog", "owl")))
    dogs = [int(i) for i in fake_server.pool.view({"view": "class", "class": "dog"})]
    fake_server.pool.answer("label", dogs, "dog")
    page = open_page("#view=class&class=cat")
    page.get_by_role("button", name="left on this page").click()
    page.get_by_role("button", name="Next class: owl").click()
    wait_for(page, "document.getElementById('view-title').textContent === 'owl'")


def test_without_a_photo_there_is_nothing_to_answer(open_page):
    page = open_page("#view=unreadable")
    for name in ("Accept", "None", "Skip", "More"):
        assert page.locator("#actions").get_by_role("button", name=name).is_disabled()
