"""Tiny models and tokenizers of real families for tests, and a reference computation of attention maps."""

import json
import re
import string
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer
from transformers import (
    AlbertConfig,
    AutoModelForSequenceClassification,
    BertConfig,
    BertTokenizerFast,
    DistilBertConfig,
    ElectraConfig,
    GPT2Config,
    ModernBertConfig,
    MPNetConfig,
    RobertaConfig,
)

from bertsecrets.errors import UserError
from bertsecrets.models.encoding import Encoded
from bertsecrets.models.locations import ModelRef
from bertsecrets.models.opening import OpenModel, open_checkpoint, open_classifier, open_encoder
from bertsecrets.models.training.finetune import finetune
from bertsecrets.settings import FinetuneParams
from bertsecrets.texts import corpus
from bertsecrets.texts.tasks import task

LAYERS, HEADS = 3, 4
TEXTS = ("ada sold two books", "leo lost the keys")
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def vocabulary() -> list[str]:
    """Return all words of the suite's own corpus, and pieces for all other words."""
    names = ("PEOPLE", "THINGS", "WHEREABOUTS", "DAYS", "DEEDS", "TRANSFERS", "NUMERALS")
    texts = [text for name in names for text in getattr(corpus, name)]
    return pieces({*re.findall("[a-z]+", " ".join(texts).lower()), "but", "not", "to"} - set(string.ascii_lowercase))


def pieces(words: Iterable[str]) -> list[str]:
    """Return special tokens, letters and digits as initial and continuation pieces, punctuation, and words."""
    letters = list(string.ascii_lowercase + string.digits)
    assert not set(letters) & set(words)
    return [*SPECIAL, *letters, *(f"##{letter}" for letter in letters), *".,'\"!?", *sorted(words)]


def save_tokenizer(folder: Path, words: list[str] | None = None) -> BertTokenizerFast:
    """Save and return a WordPiece tokenizer with a vocabulary of a few hundred pieces."""
    made = BertTokenizerFast(vocab={piece: i for i, piece in enumerate(words or vocabulary())}, do_lower_case=True)
    made.save_pretrained(folder)
    return made


def byte_pairs(special: list[str], texts: Iterable[str] = TEXTS, size: int = 320) -> dict[str, Any]:
    """Return the vocabulary and merges of a byte-level BPE, trained on texts."""
    made = Tokenizer(BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = BpeTrainer(vocab_size=size, initial_alphabet=alphabet, special_tokens=special, show_progress=False)
    made.train_from_iterator([*texts] * 5, trainer)
    parts = json.loads(made.to_str())["model"]
    return {"vocab": parts["vocab"], "merges": [tuple(pair) for pair in parts["merges"]]}


def save_bert(folder: Path, seed: int = 0, words: list[str] | None = None, **changes) -> Path:
    """Save a randomly initialised BERT and its tokenizer as a model folder."""
    tokenizer = save_tokenizer(folder, words)
    sizes = {"hidden_size": 32, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": 48}
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=256, **(sizes | changes))
    torch.manual_seed(seed)
    AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
    return folder


def settings(folder: Path, file: str, **changes: Any) -> None:
    """Change settings in a JSON file of a folder; None deletes one."""
    path = folder / file
    content = {**json.loads(path.read_text(encoding="utf-8")), **changes}
    path.write_text(json.dumps({name: value for name, value in content.items() if value is not None}), encoding="utf-8")


def rewrite(
    folder: Path,
    changed: Callable[[str, torch.Tensor], dict[str, torch.Tensor]] = lambda name, tensor: {name: tensor},
    added: dict[str, torch.Tensor] | None = None,
) -> None:
    """Rewrite a folder's weights, with each of its own replaced, and with others added."""
    file = folder / "model.safetensors"
    tensors = {new: value for name, tensor in load_file(file).items() for new, value in changed(name, tensor).items()}
    save_file({**tensors, **(added or {})}, file, {"format": "pt"})


def openers(folder: Path) -> tuple[Callable[[], OpenModel], ...]:
    """Return the ways to open a folder: with a new classifier, as a checkpoint, and as an encoder."""
    ref = ModelRef.in_folder(folder)
    return (
        lambda: open_classifier(ref, task("rte")),
        lambda: open_checkpoint(folder, task("rte")),
        lambda: open_encoder(ref),
    )


@contextmanager
def refused(message: str) -> Iterator[None]:
    """Check that the `with` block raises a one-line `UserError` whose text matches a pattern."""
    with pytest.raises(UserError, match=message) as error:
        yield
    assert "\n" not in str(error.value)


def assert_refused(folder: Path, message: str) -> None:
    """Check that no way to open a folder succeeds, and that each raises a one-line `UserError`."""
    for opened in openers(folder):
        with refused(message):
            opened()


def fast_tier(names: Iterable[str], *chosen: str) -> list[Any]:
    """Return the parameters of a test, with all but the chosen ones marked as slow."""
    assert {*chosen} <= {*names}
    return [name if name in chosen else pytest.param(name, marks=pytest.mark.slow) for name in names]


FINETUNE = FinetuneParams(
    batch_size=6, epochs=2, learning_rate=1e-3, frozen_learning_rate=1e-2, warmup=0.1, weight_decay=0.01,
    max_gradient_norm=1.0, max_length=64, precision="float32",
)  # fmt: skip


def train(classifier, split, folder, initialisation="pretrained", seed=1, states=None, **changes):
    """Fine-tune a classifier on the CPU with changes to `FINETUNE`, save it in a folder, and return the facts."""
    folder.mkdir(exist_ok=True)
    return finetune(
        classifier, split, folder, settings=FINETUNE.model_copy(update=changes), initialisation=initialisation,
        seed=seed, device=torch.device("cpu"), states=states,
    )  # fmt: skip


COMMON = {"vocab_size": 60, "num_labels": 2, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
SIZES = {"hidden_size": 32, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": 48}
WIDE = {"max_position_embeddings": 260}
CONFIGS = {
    "bert": BertConfig(**COMMON, **SIZES, **WIDE),
    "roberta": RobertaConfig(**COMMON, **SIZES, **WIDE),
    "electra": ElectraConfig(**COMMON, **SIZES, **WIDE, embedding_size=16),
    "albert": AlbertConfig(**COMMON, **SIZES, **WIDE, embedding_size=16),
    "distilbert": DistilBertConfig(**COMMON, **WIDE, dim=32, hidden_dim=48, n_layers=LAYERS, n_heads=HEADS),
    "mpnet": MPNetConfig(**COMMON, **SIZES, **WIDE),
    "gpt2": GPT2Config(**COMMON, n_embd=32, n_layer=LAYERS, n_head=HEADS, n_positions=260),
    "modernbert": ModernBertConfig(
        **COMMON, **SIZES, **WIDE, cls_token_id=2, sep_token_id=3, local_attention=8, global_attn_every_n_layers=2
    ),
}


def family(name: str, seed: int = 0):
    """Return a classifier of an architecture family, opened as in the suite, with weights large enough to matter."""
    torch.manual_seed(seed)
    model = AutoModelForSequenceClassification.from_config(CONFIGS[name], attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))  # peaked maps make differences visible
    return model


def open_family(name: str, tokenizer: Any) -> OpenModel:
    """Return a tiny classifier with the vocabulary of a tokenizer. Its weights are the same for each call."""
    config = type(CONFIGS[name]).from_dict({**CONFIGS[name].to_dict(), "vocab_size": len(tokenizer)})
    torch.manual_seed(0)
    return OpenModel(AutoModelForSequenceClassification.from_config(config), tokenizer, "")


def some_inputs(examples: int = 7, seed: int = 0, longest: int = 19, segments: bool = False) -> Encoded:
    """Return inputs of various lengths: [CLS] (2), ordinary ids, and [SEP] (3) in the middle and at the end."""
    generator = torch.Generator().manual_seed(seed)
    ids = []
    for _ in range(examples):
        length = int(torch.randint(3, longest + 1, (1,), generator=generator))
        row = torch.randint(5, 60, (length,), generator=generator).tolist()
        row[0], row[length // 2], row[-1] = 2, 3, 3
        ids.append(row)
    kinds = [[0] * (len(row) // 2 + 1) + [1] * (len(row) - len(row) // 2 - 1) for row in ids] if segments else None
    return Encoded(ids, kinds, 0)


def alone(encoded: Encoded, i: int) -> dict[str, torch.Tensor]:
    """Return the inputs of one example, without padding."""
    ids = torch.tensor([encoded.input_ids[i]])
    kinds = {} if encoded.segments is None else {"token_type_ids": torch.tensor([encoded.segments[i]])}
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), **kinds}


def plain_maps(model, encoded: Encoded, i: int) -> torch.Tensor:
    """Return one example's maps [layer, head, token, token] from transformers itself, without batching or padding."""
    with torch.no_grad():
        out = model(**alone(encoded, i), output_attentions=True)
    return torch.stack([layer[0] for layer in out.attentions])


class KeptMaps:
    """An observer that stores every example's maps by example and layer, cropped to the example's length."""

    pairs = False

    def __init__(self):
        self.maps: dict[tuple[int, int], torch.Tensor] = {}

    def update(self, batch, layer, maps, other) -> None:
        for row, i in enumerate(batch.indices.tolist()):
            size = int(batch.lengths[row])
            self.maps[i, layer] = maps[row, :, :size, :size].cpu()

    def compute(self):
        return {}, {}


def opened(model) -> OpenModel:
    """Wrap a bare model as the suite's `OpenModel`, without a tokenizer."""
    return OpenModel(model, None, "")
