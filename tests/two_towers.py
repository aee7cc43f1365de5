"""A tiny CLIP model whose answers are known: texts and images of a class have chosen embeddings.

Both towers are random networks. Their last layers are fitted by least squares, so that images of
class k lie around a e_0 + b e_k and its texts at a e_15 + b e_k: a gap of a (e_15 - e_0) between
the modalities, which is longer than the distance of two classes from each other.
"""

import json

import numpy as np
import torch
import transformers
from PIL import Image
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from infoshot.labelling.text_prototypes import TEMPLATES

COLOURS = {
    "red": (220, 40, 40),
    "green": (40, 200, 60),
    "blue": (50, 60, 220),
    "dark_gray": (60, 60, 60),
}
SWAPPED = {"yin": (230, 220, 60), "yang": (220, 60, 220)}  # each has the text of the other
SIDE, DIM = 32, 16
COMMON, OWN = 0.8, 0.6  # a and b
_WORDS = sorted({w for t in TEMPLATES for w in t.format("").replace(".", " ").split()} | {"dark"})
_CLASS_WORDS = ["red", "green", "blue", "gray", "yin", "yang", "car"]
VOCABULARY = ["<pad>", "<unk>", "<start>", ".", "-", *_WORDS, *_CLASS_WORDS, "<end>"]


def draw_photo(name, generator):
    """Draw a noisy patch of the colour of a class."""
    colour = np.array((COLOURS | SWAPPED)[name])
    pixels = colour + generator.normal(0, 25, (4, 4, 3)) + generator.normal(0, 12, 3)
    image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
    return image.resize((SIDE, SIDE), Image.Resampling.BICUBIC)


def write_photos(folder, counts, seed=1):
    """Write photos that are named by their class, and return the folder."""
    generator = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for name, n in counts.items():
        for number in range(n):
            draw_photo(name, generator).save(folder / f"{name}-{number}.png")
    return folder


def make_tokenizer():
    """Split at spaces and punctuation, one number for every word."""
    words = {word: number for number, word in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    ends = [(word, words[word]) for word in ("<start>", "<end>")]
    tokenizer.post_processor = processors.TemplateProcessing("<start> $A <end>", None, ends)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", eos_token="<end>"
    )


def make_model(kind="clip"):
    """Make the random towers of CLIP or SigLIP."""
    size = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    end = len(VOCABULARY) - 1
    vision = size | {"hidden_size": 64, "image_size": SIDE, "patch_size": 8}
    text = size | {"hidden_size": 64, "vocab_size": end + 1, "eos_token_id": end, "bos_token_id": 2,
                   "pad_token_id": 0, "max_position_embeddings": 20}  # fmt: skip
    torch.manual_seed(0)
    if kind == "siglip":
        config = transformers.SiglipConfig(vision_config=vision, text_config=text)
        return transformers.SiglipModel(config).eval()
    config = transformers.CLIPConfig(vision_config=vision, text_config=text, projection_dim=DIM)
    return transformers.CLIPModel(config).eval()


def save_model(folder, model):
    """Write a model as ``hf:FOLDER`` takes it."""
    model.save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    scale = {"image_mean": [0.5] * 3, "image_std": [0.25] * 3}
    processor = {"size": SIDE, "do_center_crop": False, **scale}
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


def class_axis(name):
    """Number of the axis along which images of a class lie."""
    return 1 + [*COLOURS, *SWAPPED].index(name)


def save_two_towers(folder):
    """Write the model whose answers are known."""
    model, names, generator = make_model(), [*COLOURS, *SWAPPED], np.random.default_rng(0)
    says = {**{name: name for name in COLOURS}, "yin": "yang", "yang": "yin"}
    axes = torch.eye(DIM)
    photos, places, texts, meanings = [], [], [], []
    for name in names:
        photos += [np.asarray(draw_photo(name, generator)) for _ in range(60)]
        places += [COMMON * axes[0] + OWN * axes[class_axis(name)]] * 60
        texts += [template.format(name.replace("_", " ")) for template in TEMPLATES]
        place = COMMON * axes[15] + OWN * axes[class_axis(says[name])]
        meanings += [place] * len(TEMPLATES)
    pixels = (torch.from_numpy(np.stack(photos)).permute(0, 3, 1, 2) / 255 - 0.5) / 0.25
    tokens = make_tokenizer()(texts, padding=True, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        seen = model.vision_model(pixel_values=pixels).pooler_output
        read = model.text_model(input_ids=tokens).pooler_output
        model.visual_projection.weight.copy_(_fit(seen, torch.stack(places)))
        model.text_projection.weight.copy_(_fit(read, torch.stack(meanings)))
    return save_model(folder, model)


def _fit(inputs, outputs):
    """Least squares, slightly regularised."""
    x, y = inputs.double(), outputs.double()
    return torch.linalg.solve(x.T @ x + 1e-6 * torch.eye(x.shape[1]).double(), x.T @ y).T.float()
