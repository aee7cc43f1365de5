"""Tutorials: what a script prints and draws, as a page and as a notebook."""

import base64
import json

import pytest

SCRIPT = """# %% [markdown]
# # A title
#
# Text with `code`.

# %%
from dataclasses import dataclass

number = 6
print("printed")
number * 7

# %%
from matplotlib import pyplot as plt

figure, axis = plt.subplots()
axis.plot([1, 2])
figure.tight_layout()
"""


@pytest.fixture(scope="module")
def tutorials(website):
    return website("tutorials")


@pytest.fixture(scope="module")
def cells(tutorials, tmp_path_factory):
    script = tmp_path_factory.mktemp("scripts") / "my_script.py"
    script.write_text(SCRIPT)
    return tutorials.run_script(script)


def test_a_script_is_run_cell_by_cell(cells):
    text, code, drawing = cells
    assert text == {"kind": "markdown", "source": "# A title\n\nText with `code`."}
    assert code["text"] == "printed\n42\n"
    assert drawing["text"] == ""
    assert base64.b64decode(drawing["figures"][0]).startswith(b"\x89PNG")


def test_a_page_shows_text_code_output_and_figures(tutorials, cells):
    page = tutorials.write_page(cells, "my_script")
    assert page.startswith("# A title\n\nText with `code`.\n\n```python\nfrom dataclasses")
    assert "```text\nprinted\n42\n```" in page
    assert page.count("](my_script-0.png)") == 1
    assert "my_script.ipynb" in page
    assert "my_script.py" in page


def test_a_notebook_has_the_same_cells(tutorials, cells):
    notebook = json.loads(tutorials.write_notebook(cells))
    assert (notebook["nbformat"], len(notebook["cells"])) == (4, 3)
    assert [cell["cell_type"] for cell in notebook["cells"]] == ["markdown", "code", "code"]
    assert notebook["cells"][1]["outputs"][0]["text"] == "printed\n42\n"
    assert list(notebook["cells"][2]["outputs"][0]["data"]) == ["image/png"]


def test_a_script_that_fails_ends_the_build(tutorials, tmp_path):
    script = tmp_path / "wrong.py"
    script.write_text("# %%\nassert 1 == 2, 'not equal'\n")
    with pytest.raises(RuntimeError, match=r"wrong\.py failed:(.|\n)*not equal"):
        tutorials.run_script(script)


def test_the_page_of_tutorials_lists_every_script(tutorials):
    scripts = tutorials.find_scripts("tutorials")
    index = (tutorials.ROOT / "docs" / "tutorials" / "index.md").read_text()
    assert [path.name for path in scripts] == sorted(
        (path.name for path in scripts), key=index.index
    )
    for path in [*scripts, *tutorials.find_scripts("gallery")]:
        assert path.read_text().startswith("# %% [markdown]\n# # "), path.name


def test_links_to_scripts_lead_to_their_pages(website):
    map_links = website("outside").map_links
    page = "tutorials/compare_methods.md"
    assert map_links("[it](own_method.py)", page) == "[it](own_method.md)"
    assert map_links("[it](../label.md#steps)", page) == "[it](../label.md#steps)"
    assert map_links("[it](../gallery)", "tutorials/index.md") == "[it](../gallery/index.md)"
