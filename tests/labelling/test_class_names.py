"""Files with the names of classes, and what they must fit."""

import pytest

from infoshot import DataError, InvalidArgumentError
from infoshot.images.folders import find_examples
from infoshot.labelling.class_names import read_class_names
from tests.encoders import one_sentence


def test_names_are_read_line_by_line(tmp_path):
    file = tmp_path / "classes.txt"
    file.write_bytes("\ufeffred fox \r\n dark_gray\r\nGröße\r\n\r\n".encode())
    assert read_class_names(file) == ("red fox", "dark_gray", "Größe")
    assert read_class_names(str(file)) == read_class_names(file)
    assert read_class_names(["b", " a"]) == ("b", "a")


BAD = {
    "": "at least two classes are needed, one on every line; got 0.",
    "cat\n": "at least two classes are needed, one on every line; got 1.",
    "cat\n\ndog\n": "line 2 is blank; write one class on every line.",
    "\ncat\ndog\n": "line 1 is blank; write one class on every line.",
    "cat\ndog\ncat\n": "the class 'cat' is on the lines 1 and 3; write every class once.",
    "cat\ndog\n(none)\n": "'(none)' means 'none of the classes'; rename this class.",
    "cat\nCat\n": "the labels 'cat' (line 1) and 'Cat' (line 2) differ only in case, spaces or "
    "Unicode form; did you mean 'cat'?",
    "cat\nd\x07g\n": "(line 2): the class name 'd\\x07g' contains the character '\\x07'; rename "
    "the class, without control characters.",
}


@pytest.mark.parametrize("text", BAD)
def test_files_that_are_no_list_of_classes_get_one_clear_sentence(text, tmp_path):
    file = tmp_path / "classes.txt"
    file.write_text(text)
    with pytest.raises(DataError) as caught:
        read_class_names(file)
    assert one_sentence(caught).startswith(f"{file}")
    assert str(caught.value).endswith(BAD[text])


def test_sequences_and_missing_files_get_one_clear_sentence(tmp_path):
    with pytest.raises(DataError, match=r"^classes: line 2 is blank"):
        read_class_names(["cat", " "])
    with pytest.raises(InvalidArgumentError) as caught:
        read_class_names(["cat", 3])
    assert one_sentence(caught) == "classes must be a file or names of classes; got ['cat', 3]."
    with pytest.raises(DataError) as caught:
        read_class_names(tmp_path / "no.txt")
    message = f"{tmp_path}/no.txt: this file with the names of the classes does not exist."
    assert one_sentence(caught) == message


def test_examples_must_belong_to_the_named_classes(made):
    examples = made / "examples"
    names = ("cat", "dog", "eel", "fox")
    assert {label for label, _ in find_examples(examples, names)} == {"cat", "dog", "eel"}
    with pytest.raises(DataError) as caught:
        find_examples(examples, ("cat", "dog", "eels"))
    assert one_sentence(caught) == (
        f"{examples}: 'eel' has examples, but is not in classes (is it 'eels'?); add it there, or "
        "rename it here."
    )
    with pytest.raises(DataError, match="'dog' has examples, but is not in classes; add it there"):
        find_examples(examples, ("cat", "eel"))


def test_one_class_with_examples_is_enough_beside_names(made, tmp_path):
    (tmp_path / "cat").symlink_to(made / "examples" / "cat")
    assert {label for label, _ in find_examples(tmp_path, ("cat", "dog"))} == {"cat"}
    with pytest.raises(DataError, match="examples of at least two classes are needed"):
        find_examples(tmp_path, None)
