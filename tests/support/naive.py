"""Naive references for measures: one example at a time, on transformers' eager model, without the suite's code."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ablation_reference import changed_weights, without_heads
from tokenizers import Tokenizer
from transformers import AutoModelForSequenceClassification
from zoo import ENCODERS, FURTHER_ENCODERS, WITHOUT_SEGMENTS

KINDS = ("cls", "sep")


class Naive:
    """A checkpoint and some labelled rows, each encoded separately and therefore not padded."""

    def __init__(self, folder: Path, rows: list[tuple[str, str, int]], max_length: int):
        self.model: Any = AutoModelForSequenceClassification.from_pretrained(folder, attn_implementation="eager").eval()
        words = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.inputs = [self._joined(words, first, second) for first, second, _ in rows]
        assert max(inputs["input_ids"].shape[1] for inputs in self.inputs) <= max_length
        self.labels = [torch.tensor([label]) for *_, label in rows]
        with torch.no_grad():
            self.model(**self.inputs[0])  # if inputs are short, BigBird now switches to full attention
        sizes = ("num_hidden_layers", "num_attention_heads")
        self.layers, self.heads = (getattr(self.model.config, size, None) for size in sizes)

    def _joined(self, words: Tokenizer, first: str, second: str) -> dict[str, torch.Tensor]:
        """Return a pair as the tokenizers of its family join it, written out here instead of read from the folder."""
        family = self.model.config.model_type
        one, two = (words.encode(text, add_special_tokens=False).ids for text in (first, second))
        if family in {**ENCODERS, **FURTHER_ENCODERS}:
            roles = ("[CLS]", "[SEP]")
        else:
            roles = ("<s>", "</s>") if family == "llama" else ("<|endoftext|>",) * 2
        cls, sep = map(words.token_to_id, roles)
        self.special = {"cls": None if roles[0] == roles[1] else cls, "sep": sep}
        if roles[0] != "[CLS]":
            ids, segments = [cls, *one, cls, *two], None
        else:
            ids = [cls, *one, sep, *two, sep]
            segments = None if family in WITHOUT_SEGMENTS else [0] * (len(one) + 2) + [1] * (len(two) + 1)
        inputs = {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids), dtype=torch.long)}
        return inputs if segments is None else {**inputs, "token_type_ids": torch.tensor([segments])}

    def places(self, i: int) -> dict[str, torch.Tensor]:
        ids = self.inputs[i]["input_ids"][0]
        here = {kind: ids == (-1 if token is None else token) for kind, token in self.special.items()}
        return {**here, "other": ~here["cls"] & ~here["sep"]}

    def logits(self) -> np.ndarray:
        with torch.no_grad():
            return np.stack([self.model(**inputs).logits[0].numpy() for inputs in self.inputs])

    def loss(self, logits: torch.Tensor, i: int) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(logits, self.labels[i])

    def maps(self, i: int) -> torch.Tensor:
        with torch.no_grad():
            return torch.cat(self.model(**self.inputs[i], output_attentions=True).attentions)

    # ------------------------------------------------------------------ measures, by name

    def scores(self) -> dict[str, np.ndarray]:
        return {"predicted": self.logits().argmax(-1)}

    def special_tokens(self) -> dict[str, np.ndarray]:
        samples: dict[str, list[torch.Tensor]] = {kind: [] for kind in KINDS}
        for i in range(len(self.inputs)):
            received = self.maps(i).mean(2)
            for kind in KINDS:
                here = received[:, :, self.places(i)[kind]]
                samples[kind].append(here.amax(-1) if here.shape[-1] else torch.full(here.shape[:2], torch.nan))
        return {kind: torch.stack(of_kind).numpy() for kind, of_kind in samples.items()}

    def head_statistics(self) -> dict[str, np.ndarray]:
        maps = (self.maps(i).double() for i in range(len(self.inputs)))
        return {"entropy": np.stack([-(of * of.clamp(min=1e-30).log2()).sum(-1).mean(-1).numpy() for of in maps])}

    def attention_gradients(self) -> dict[str, np.ndarray]:
        samples: dict[str, list[torch.Tensor]] = {kind: [] for kind in (*KINDS, "other")}
        for i, inputs in enumerate(self.inputs):
            out = self.model(**inputs, output_attentions=True)
            slopes = torch.cat(torch.autograd.grad(self.loss(out.logits, i), out.attentions)).abs()
            for kind, here in self.places(i).items():
                samples[kind].append(slopes[..., here].mean((-2, -1)))
        return {kind: torch.stack(of_kind).numpy() for kind, of_kind in samples.items()}

    def anisotropy(self) -> dict[str, np.ndarray]:
        words = []
        for i, inputs in enumerate(self.inputs):
            with torch.no_grad():
                states = torch.cat(self.model(**inputs, output_hidden_states=True).hidden_states)
            words.append(states[:, self.places(i)["other"]].double())
        mean = torch.cat(words, dim=1).mean(1, keepdim=True)
        order = np.random.default_rng(2019).permutation(len(words))
        samples = {name: np.full((len(words), len(mean)), np.nan) for name in ("cosine", "centred")}
        for one, two in order[: len(words) // 2 * 2].reshape(-1, 2):
            for name, less in (("cosine", 0), ("centred", mean)):
                a, b = (torch.nn.functional.normalize(words[i] - less, dim=-1) for i in (one, two))
                samples[name][one] = (a @ b.transpose(1, 2)).mean((1, 2)).numpy()
        return samples

    def head_ablation(self) -> dict[str, np.ndarray]:
        return self._predicted([{(layer, head)} for layer in range(self.layers) for head in range(self.heads)])

    def layer_ablation(self) -> dict[str, np.ndarray]:
        return self._predicted([{(layer, head) for head in range(self.heads)} for layer in range(self.layers)])

    def _predicted(self, sets: list[set[tuple[int, int]]]) -> dict[str, np.ndarray]:
        answers = []
        for disabled in sets:
            with changed_weights(self.layers, self.heads, without_heads(disabled, self.heads)):
                answers.append(self.logits().argmax(-1))
        return {"predicted": np.stack(answers)}

    def head_pruning(self) -> dict[str, np.ndarray]:
        total = torch.zeros(self.layers, self.heads)
        for i, inputs in enumerate(self.inputs):
            gates = torch.ones(self.layers, self.heads, requires_grad=True)
            gated = lambda layer, weights, gates=gates: weights * gates[layer][:, None, None]  # noqa: E731
            with changed_weights(self.layers, self.heads, gated):
                logits = self.model(**inputs).logits
            total += torch.autograd.grad(self.loss(logits, i), gates)[0].abs()
        return {"importance": (total / total.norm(dim=1, keepdim=True)).numpy()}

    def weight_pruning(self) -> dict[str, np.ndarray]:
        embeddings = {id(m.weight) for m in self.model.modules() if isinstance(m, torch.nn.Embedding)}
        weights = {
            id(weight): weight.data
            for name, weight in self.model.base_model.named_parameters()
            if re.search(r"\.\d+\.", f".{name}") and weight.dim() > 1 and not re.search("bias|embed", name)
            if id(weight) not in embeddings
        }
        sizes, _ = torch.cat([weight.flatten().abs() for weight in weights.values()]).sort()
        answers = []
        for share in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7):
            for weight in weights.values():
                weight[weight.abs() <= sizes[round(share * len(sizes)) - 1]] = 0
            answers.append(self.logits().argmax(-1))
        return {"predicted": np.stack(answers)}

    # ------------------------------------------------------------------ training

    def train(self, steps: int, rate: float, *, frozen: bool) -> "Naive":
        """Take full-batch AdamW steps at a linearly decreasing rate, accumulating gradients one example at a time."""
        self.model.train()
        self.model.base_model.requires_grad_(not frozen)
        trained = [weight for weight in self.model.parameters() if weight.requires_grad]
        optimizer = torch.optim.AdamW(trained, weight_decay=0.0)
        for step in range(steps):
            for i, inputs in enumerate(self.inputs):
                (self.loss(self.model(**inputs).logits, i) / len(self.inputs)).backward()
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.param_groups[0]["lr"] = rate * (steps - step) / steps
            optimizer.step()
            optimizer.zero_grad()
        self.model.eval()
        return self
