"""Text towers of models that embed images and text (CLIP, SigLIP) of transformers.

The tower of an encoder is opened from where its images were opened. It is not a part of the
encoder, so that the features of images do not depend on it. Texts are encoded on the CPU. SigLIP
was trained on texts that are padded to the full length, CLIP does not see what follows the end of
a text; so neither needs a mask.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from infoshot.backbones.backbone import Encoder
from infoshot.backbones.external import external_checks
from infoshot.backbones.external.hf import HfBackbone, reading_hf
from infoshot.core.errors import DataError, InvalidArgumentError

_AT_ONCE = 64  # texts


@dataclass(frozen=True, eq=False)
class TextTower:
    """A frozen text tower.

    Parameters
    ----------
    model, tokenizer
        Those of transformers.
    pads_fully
        Whether texts are padded to the full length.
    digest
        The sha256 of the weights and of everything else that determines the features of a text.
    """

    model: Any
    tokenizer: Any
    pads_fully: bool
    digest: str

    @torch.inference_mode()
    def encode(self, texts: Sequence[str]) -> Tensor:
        """Compute the features of texts, shape ``(text, dim)``; long texts are cut off."""
        rows = []
        for start in range(0, len(texts), _AT_ONCE):
            tokens = self.tokenizer(
                list(texts[start : start + _AT_ONCE]),
                padding="max_length" if self.pads_fully else True,
                max_length=self.model.config.text_config.max_position_embeddings,
                truncation=True,
                return_tensors="pt",
            )
            found = self.model.get_text_features(input_ids=tokens["input_ids"]).pooler_output
            rows.append(found.float())
        return torch.cat(rows).clone()  # an ordinary tensor, outside of inference mode


def open_text_tower(encoder: Encoder) -> TextTower:
    """Open the text tower that belongs to an encoder of images.

    Raises
    ------
    InvalidArgumentError
        If the encoder has none.
    DataError
        If the tower or its tokenizer is missing or damaged.
    """
    backbone = encoder.backbone
    if not isinstance(backbone, HfBackbone) or not backbone.embeds_text:
        raise InvalidArgumentError(
            "backbone must be an encoder with a text tower, such as clip-vit-b32 or siglip-base, "
            f"if classes are given by their names; '{encoder.backbone_name}' has none."
        )
    what = encoder.backbone_name
    with reading_hf(what, "text tower") as transformers:
        options = {"local_files_only": backbone.is_local, "trust_remote_code": False}
        tokenizer = transformers.AutoTokenizer.from_pretrained(backbone.source, **options)
        model, found = transformers.AutoModel.from_pretrained(
            backbone.source, output_loading_info=True, **options
        )
    model.vision_model = None  # texts do not use it
    absent = sorted(set(found["missing_keys"]) & model.state_dict().keys())
    if absent:
        raise DataError(
            f"{what}: {len(absent)} weights of its text tower are missing (such as '{absent[0]}')."
        )
    words, n_known = tokenizer.get_vocab(), model.config.text_config.vocab_size
    if not n_known / 2 <= len(words) <= n_known:  # transformers makes up one if the files miss
        raise DataError(
            f"{what}: its tokenizer must be the one of its text tower, which knows {n_known} "
            f"tokens; got one with {len(words)}."
        )
    model = model.float().eval()
    facts = {**model.config.text_config.to_diff_dict(), "transformers_version": None}
    facts["vocabulary"] = sorted(words.items())
    digest = external_checks.network_digest(model, facts)
    return TextTower(model, tokenizer, backbone.model_type == "siglip", digest)
