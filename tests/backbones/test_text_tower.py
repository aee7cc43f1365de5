"""Text towers: the features of transformers, refusals."""

import json

import pytest
import torch
import transformers

from infoshot import DataError, InvalidArgumentError
from infoshot.backbones import open_encoder
from infoshot.backbones.external import text_tower
from infoshot.backbones.external.text_tower import open_text_tower
from tests.encoders import one_sentence, save_conv4
from tests.two_towers import make_model, make_tokenizer, save_model

TEXTS = ["a photo of a red car.", "a photo of the gray.", "unheard words", "a " * 40]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("towers")
    return {kind: save_model(root / kind, make_model(kind)) for kind in ("clip", "siglip")}


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_features_equal_those_of_transformers(kind, folders, monkeypatch):
    monkeypatch.setattr("socket.socket.connect", None)  # no network access
    monkeypatch.setattr(text_tower, "_AT_ONCE", 3)
    tower = open_text_tower(open_encoder(f"hf:{folders[kind]}"))
    tokens = make_tokenizer()(
        TEXTS, padding="max_length", max_length=20, truncation=True, return_tensors="pt"
    )
    tokens.pop("token_type_ids", None)
    if kind == "siglip":  # it was trained without
        tokens.pop("attention_mask")
    with torch.no_grad():
        expected = make_model(kind).get_text_features(**tokens).pooler_output
    torch.testing.assert_close(tower.encode(TEXTS), expected, atol=1e-5, rtol=1e-4)


def test_the_digest_depends_on_the_text_tower_and_its_words_only(folders, tmp_path):
    def digest(folder):
        return open_text_tower(open_encoder(f"hf:{folder}")).digest

    before = digest(folders["clip"])
    model = make_model()
    with torch.no_grad():
        model.vision_model.post_layernorm.bias.add_(1)
    assert digest(save_model(tmp_path / "images", model)) == before
    with torch.no_grad():
        model.text_projection.weight.add_(1e-3)
    assert digest(save_model(tmp_path / "texts", model)) != before
    folder = save_model(tmp_path / "words", make_model())
    words = folder / "tokenizer.json"
    words.write_text(words.read_text().replace('"red"', '"rot"'))
    assert digest(folder) != before


def test_encoders_of_images_alone_are_refused(tmp_path):
    for encoder in (
        open_encoder("efficientnet-lite0"),
        open_encoder(save_conv4(tmp_path / "conv4")),
    ):
        with pytest.raises(InvalidArgumentError) as caught:
            open_text_tower(encoder)
        assert one_sentence(caught) == (
            "backbone must be an encoder with a text tower, such as clip-vit-b32 or siglip-base, "
            f"if classes are given by their names; '{encoder.backbone_name}' has none."
        )


def test_a_vision_tower_alone_is_refused(tmp_path):
    config = make_model().config.vision_config
    transformers.CLIPVisionModel(config).save_pretrained(tmp_path)
    processor = {"size": 32, "do_center_crop": False, "image_mean": [0.5] * 3, "image_std": [1] * 3}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor))
    with pytest.raises(InvalidArgumentError, match="must be an encoder with a text tower"):
        open_text_tower(open_encoder(f"hf:{tmp_path}"))


def test_a_tower_without_its_tokenizer_or_weights_is_reported(tmp_path):
    folder = save_model(tmp_path / "clip", make_model())
    encoder = open_encoder(f"hf:{folder}")
    weights = make_model().state_dict()
    del weights["text_projection.weight"]
    make_model().save_pretrained(folder, state_dict=weights)
    with pytest.raises(DataError) as caught:
        open_text_tower(encoder)
    message = "hf:clip: 1 weights of its text tower are missing (such as 'text_projection.weight')."
    assert one_sentence(caught) == message
    save_model(folder, make_model())
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    with pytest.raises(DataError) as caught:
        open_text_tower(encoder)
    start = "hf:clip: its tokenizer must be the one of its text tower, which knows "
    assert one_sentence(caught).startswith(start)
    (folder / "config.json").write_text("{")
    with pytest.raises(DataError) as caught:
        open_text_tower(encoder)
    assert one_sentence(caught).startswith("hf:clip: transformers cannot read a text tower (")
