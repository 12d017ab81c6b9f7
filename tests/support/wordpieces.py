"""A small WordPiece tokenizer with a handmade vocabulary, a byte-level tokenizer, and words split at white space."""

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from bertsecrets.texts.parsing import Word

PIECES = "[PAD] [UNK] [CLS] [SEP] the cat cats sat on mat don t ' un ##happi ##ness cafe na ##ive . , – mouse him"


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {piece: i for i, piece in enumerate(PIECES.split(" "))}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=made, **special)


def byte_level_tokenizer(texts: list[str], trim: bool) -> PreTrainedTokenizerFast:
    """Return a GPT-2-like tokenizer trained on the texts. Untrimmed piece offsets include the preceding space."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=trim)
    made.post_processor = processors.ByteLevel(trim_offsets=trim)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False))
    return PreTrainedTokenizerFast(tokenizer_object=made)


def words_of(text, tags=None, relations=None, heads=None):
    """Return words split at white space. Words are nouns by default."""
    words, start = [], 0
    for n, word in enumerate(text.split()):
        start = text.index(word, start)
        tag = (tags or {}).get(word, "NN")
        relation, head = (relations or {}).get(word, "dep"), (heads or {}).get(word, n)
        words.append(Word(word, start, start + len(word), tag, relation, head))
        start += len(word)
    return tuple(words)
