"""Models are measured only by unchanged code, from files that are part of the cache key."""

import functools
import importlib
import json
import os
import sys
import time
from contextlib import contextmanager, nullcontext
from importlib import metadata

import pytest
import tokenizers
import torch
import transformers.activations
from jaxtyping import jaxtyped
from sessions import local_session
from tabulate import tabulate
from tiny import save_bert
from torch import nn
from torch.nn.modules.module import register_module_forward_hook
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AttentionInterface, conversion_mapping, initialization, masking_utils, monkey_patching
from transformers.loss.loss_utils import LOSS_MAPPING
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.auto import modeling_auto, tokenization_auto
from transformers.models.bert import modeling_bert

from bertsecrets import UserError
from bertsecrets.models import families, patches
from bertsecrets.models.families import Family
from bertsecrets.models.library_source import declared, doubt_in_a_new_process, intruder
from bertsecrets.models.locations import ModelRef, check_folder
from bertsecrets.models.opening import open_encoder
from bertsecrets.models.patches import check_code
from bertsecrets.store import code, packages
from bertsecrets.store.code import code_digest, digest_of_classes
from bertsecrets.store.entries import NO_SOURCE, Key
from bertsecrets.texts.own_tasks import OwnTask


class Silu(nn.SiLU):
    """A module of a user."""


def nothing(*_args, **_options):
    return None


@contextmanager
def replaced(owner, name, value):
    with pytest.MonkeyPatch.context() as patch:
        if isinstance(owner, dict):
            patch.setitem(owner, name, value)
        else:
            patch.setattr(owner, name, value, raising=False)
        yield


@contextmanager
def appended(values):
    values.append(None)
    yield
    values.pop()


def registered(name):
    return replaced(AttentionInterface, "_global_mapping", {**AttentionInterface._global_mapping, name: nothing})


@contextmanager
def removed(table, name):
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(table, name)
        yield


@contextmanager
def added_class(auto):
    auto.register(transformers.BertConfig, transformers.RobertaTokenizer, exist_ok=True)
    yield
    del transformers.TOKENIZER_MAPPING._extra_content[transformers.BertConfig]
    del tokenization_auto.REGISTERED_TOKENIZER_CLASSES["RobertaTokenizer"]


@contextmanager
def added_conversion(name):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conversion_mapping, "USER_REGISTERED_MAPPINGS", set())
        patch.setattr(conversion_mapping, "_checkpoint_conversion_mapping_cache", None)
        conversion_mapping.register_checkpoint_conversion_mapping(name, [], overwrite=True)
        yield


@contextmanager
def kernel():
    library = torch.library.Library("aten", "IMPL")
    library.impl("gelu", lambda x, approximate="none": torch.relu(x), "CPU")
    try:
        yield
    finally:
        library._destroy()


def generated():
    scope = vars(nn.functional)
    exec("def gelu_(x, approximate='none'): return relu(x)", scope)
    return scope.pop("gelu_")


BERT, OUTPUT = modeling_bert.BertModel, modeling_bert.BertSelfOutput
HALF = torch.autocast("cpu")(BERT.forward)
OTHER_GELU = functools.partial(torch._C._nn.gelu, approximate="tanh")
OTHER_NORM = functools.partial(nn.functional.layer_norm, eps=1.0)
ACT2FN, GELU = transformers.activations.ACT2FN, transformers.activations.GELUActivation
MAPPING, REPLACEMENTS = transformers.MODEL_MAPPING._extra_content, monkey_patching._monkey_patch_mapping_cache
CHANGES = {  # a context manager, or an owner, a name in it and a new value; and the message
    "global hook": (lambda: register_module_forward_hook(nothing), "_global_forward_hooks"),
    "function mode": (TorchFunctionMode, "mode TorchFunctionMode"),
    "dispatch mode": (TorchDispatchMode, "mode TorchDispatchMode"),
    "default device": (lambda: torch.device("meta"), "default device of torch is meta: call torch.set_default_dev"),
    "saved tensors": (torch.autograd.graph.save_on_cpu, "saved_tensors_hooks of torch are active"),
    "autocast": (lambda: torch.autocast("cpu", torch.bfloat16), "autocast"),
    "method of a model": (OUTPUT, "forward", nothing, "BertSelfOutput.forward is patched"),
    "decorated method": (OUTPUT, "forward", torch.no_grad()(nothing), "BertSelfOutput.forward"),
    "partial": (OUTPUT, "forward", functools.partial(nothing), "BertSelfOutput.forward"),
    "class of a model": (modeling_bert, "BertOutput", Silu, "modeling_bert.BertOutput is patched"),
    "attention": (modeling_bert, "eager_attention_forward", nothing, "eager_attention_forward is"),
    "registered attention": (lambda: registered("sdpa"), "attention function 'sdpa'"),
    "activation": (GELU, "forward", nothing, "GELUActivation"),
    "module of torch": (nn.LayerNorm, "forward", nothing, "LayerNorm.forward is patched"),
    "every module": (nn.Module, "__call__", nothing, "Module.__call__ is patched"),
    "function of torch": (nn.functional, "linear", nothing, "functional.linear is patched"),
    "masks": (masking_utils, "sdpa_mask", nothing, "sdpa_mask"),
    "another package": (OUTPUT, "forward", tabulate, r"BertSelfOutput.forward is patched \(code from tabulate"),
    "tensors": (torch.Tensor, "softmax", nothing, "Tensor.softmax is patched"),
    "optimizer": (torch.optim.AdamW, "step", nothing, "AdamW.step is patched"),
    # code of the libraries in another place
    "code": (OUTPUT.forward, "__code__", (lambda self, hidden, other: other).__code__, "test_patches"),
    "code of a library": (OUTPUT.forward, "__code__", GELU.forward.__code__, r"code from .*activations\.py"),
    "other method": (GELU, "forward", OUTPUT.forward, "GELUActivation.forward is patched"),
    "other function": (nn.functional, "gelu", nn.functional.relu, "gelu is patched .code from relu"),
    "other operator": (nn.functional, "gelu", torch.sigmoid, "gelu is patched .code from sigmoid"),
    "generated function": (nn.functional, "gelu", generated(), "gelu is patched .code from <string>"),
    "other descriptor": (torch.Tensor, "softmax", torch.Tensor.sigmoid, "Tensor.softmax is patched"),
    "partial of a library": (nn.functional, "gelu", OTHER_GELU, "gelu is patched .code from partial"),
    "partial of itself": (nn.functional, "layer_norm", OTHER_NORM, "layer_norm is patched .code from partial"),
    "decorator of a library": (BERT, "forward", HALF, "BertModel.forward is patched .code from autocast_decorator"),
    "other class": (nn, "LayerNorm", nn.RMSNorm, "torch.nn.LayerNorm is patched"),
    "activation function": (ACT2FN, "gelu", nn.ReLU, r"ACT2FN\['gelu'\] is patched .* torch.*ReLU"),
    "options of one": (ACT2FN, "gelu_10", (GELU, {"use_gelu_python": True}), r"ACT2FN\['gelu_10'\] is"),
    "added activation": (ACT2FN, "mine", nn.ReLU, r"ACT2FN\['mine'\] is patched"),
    "other table": (modeling_bert, "ACT2FN", {**ACT2FN}, "modeling_bert.ACT2FN is patched"),
    "positions": (ROPE_INIT_FUNCTIONS, "linear", ROPE_INIT_FUNCTIONS["yarn"], "ROPE_INIT_FUNCTIONS"),
    "mapping": (MAPPING, transformers.BertConfig, transformers.RobertaModel, "uses for BertConfig is patched"),
    "added class": (lambda: added_class(transformers.AutoTokenizer), "uses for BertConfig is patched"),
    "configuration": (
        transformers.CONFIG_MAPPING._extra_content,
        "bert",
        transformers.RobertaConfig,
        "uses for bert is",
    ),
    "name of a class": (modeling_auto.MODEL_MAPPING_NAMES, "bert", "RobertaModel", r"MODEL_MAPPING_NAMES\['bert'\] is"),
    "loss": (LOSS_MAPPING, "ForSequenceClassification", LOSS_MAPPING["ForCausalLM"], "LOSS_MAPPING"),
    "missing loss": (
        lambda: removed(LOSS_MAPPING, "ForSequenceClassification"),
        "ForSequenceClassification'. is patched",
    ),
    "added loss": (LOSS_MAPPING, "Bert", nothing, r"LOSS_MAPPING\['Bert'\] is patched .code from test_patches.nothing"),
    "random weights": (initialization, "normal_", nothing, "initialization.normal_ is patched"),
    "function for random weights": (
        *(initialization.TORCH_INIT_FUNCTIONS, "normal_", nn.init.uniform_),
        r"TORCH_INIT_FUNCTIONS\['normal_'\] is patched",
    ),
    "conversion": (lambda: added_conversion("BertModel"), "conversion of weights of BertModel is patched"),
    "conversion for a type": (lambda: added_conversion("bert"), "conversion of weights of bert is patched"),
    "gradients": (torch.autograd, "backward", nothing, "torch.autograd.backward is patched"),
    "other gradients": (torch.autograd, "backward", torch.autograd.grad, "torch.autograd.backward is patched"),
    "clipping": (torch.nn.utils.clip_grad, "clip_grad_norm_", nothing, "clip_grad_norm_ is patched"),
    "tokenizer": (tokenizers.Tokenizer, "encode_batch", nothing, "Tokenizer.encode_batch is patched"),
    "method of a tokenizer": (tokenizers.Tokenizer, "encode_batch", tokenizers.Tokenizer.encode, "encode_batch is"),
    "normalizer": (tokenizers.normalizers, "BertNormalizer", nothing, "normalizers.BertNormalizer is patched"),
    "tokenizer of transformers": (transformers.BertTokenizer, "_encode_plus", nothing, "_encode_plus is patched"),
    "replacements": (REPLACEMENTS, "BertLayer", modeling_bert.BertOutput, "uses for BertLayer is patched"),
    # data
    "default value": (nn.functional.layer_norm, "__defaults__", (None, None, None, 1.0), "1.0"),
    "order of default values": (
        *(nn.functional.dropout, "__defaults__", (0.5, False, True)),
        r"functional.dropout is patched .default values .0.5, False, True",
    ),
    "default value of a method": (
        *(nn.LayerNorm.__init__, "__defaults__", (0.1, True, True, None, None)),
        "LayerNorm.__init__ is patched .default values .0.1",
    ),
    "keyword": (
        *(nn.functional.triplet_margin_with_distance_loss.__kwdefaults__, "margin", 2.0),
        "triplet_margin_with_distance_loss is patched",
    ),
    "attribute": (modeling_bert.BertPreTrainedModel, "_supports_sdpa", False, "_supports_sdpa is patched"),
    "new attribute": (OUTPUT, "scaling", 3.0, "scaling is patched .value 3.0"),
    "list": (BERT, "_no_split_modules", [], r"BertModel._no_split_modules is patched .value \[\]"),
    "changed list": (lambda: appended(BERT._no_split_modules), "BertModel._no_split_modules is patched"),
    "constant": (nn.functional.GRID_SAMPLE_PADDING_MODES, "zeros", 1, "GRID_SAMPLE_PADDING_MODES is"),
    "kernel": (kernel, r"operator aten::gelu of torch is patched \(code from .*test_patches.py"),
}


@pytest.fixture(scope="module")
def ref(tmp_path_factory):
    return ModelRef.in_folder(save_bert(tmp_path_factory.mktemp("patches") / "model"))


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
@pytest.mark.parametrize("change", CHANGES)
def test_changed_code_is_refused_only_while_it_is_changed(ref, monkeypatch, change):
    *changed, message = CHANGES[change]
    monkeypatch.setattr(patches, "doubt_in_a_new_process", lambda *place: "")  # as a new process finds, see below
    check_code(ref)  # the result must not be kept
    with changed[0]() if len(changed) == 1 else replaced(*changed), pytest.raises(UserError, match=message):
        check_code(ref)
    check_code(ref)


def test_unchanged_code_and_a_default_device_are_accepted(ref):
    alone = open_encoder(ref).fingerprint
    with torch.device("cpu"), registered("mine"):
        assert open_encoder(ref).fingerprint == alone


@pytest.mark.parametrize(("in_a_new_process", "refused"), [("code from relu", False), ("", True)])
def test_what_a_library_does_itself_is_accepted(ref, monkeypatch, in_a_new_process, refused):
    """What looks like a change in an unknown version of a library is checked in a new process."""
    monkeypatch.setattr(patches, "_verified", {})
    monkeypatch.setattr(patches, "doubt", lambda *given: "code from relu" if given[-1] is nn.functional.gelu else None)
    monkeypatch.setattr(patches, "doubt_in_a_new_process", lambda *place: in_a_new_process)
    with pytest.raises(UserError, match="gelu is patched .code from relu") if refused else nullcontext():
        check_code(ref)


@pytest.mark.parametrize(
    ("module", "cls", "name", "other"),
    [
        ("torch.nn.functional", "", "gelu", nn.functional.relu),
        ("transformers.activations", "GELUActivation", "forward", OUTPUT.forward),
    ],
)
def test_a_new_process_finds_nothing_replaced(module, cls, name, other):
    with replaced(getattr(sys.modules[module], cls) if cls else sys.modules[module], name, other):
        assert intruder(module, cls, name, other) == other.__qualname__
        assert doubt_in_a_new_process(module, cls, name) == ""


def test_what_torch_compile_adds_to_a_module_is_accepted(ref, monkeypatch):
    namespace = {"__name__": "torch._dynamo.generated"}
    exec("def compiled(): pass", namespace)
    for place in (transformers.utils.generic, modeling_bert):
        monkeypatch.setattr(place, "__compiled_fn_1_bc2c2b1d", namespace["compiled"], raising=False)
    check_code(ref)


def test_a_module_of_a_class_of_the_user_is_refused(ref, monkeypatch):
    monkeypatch.setitem(transformers.activations.ACT2FN, "gelu", Silu)
    with pytest.raises(UserError, match="BertModel contains a Silu"):
        open_encoder(ref)


@pytest.mark.parametrize("module", [__name__, "transformers.models.bert.tokenization_bert"])
def test_a_tokenizer_of_a_class_of_the_user_is_refused(ref, monkeypatch, module):
    """The class may have any name."""
    tokenizer = type("BertTokenizer", (transformers.BertTokenizer,), {"__module__": module})
    monkeypatch.setitem(tokenization_auto.REGISTERED_TOKENIZER_CLASSES, "BertTokenizer", tokenizer)
    with pytest.raises(UserError, match=f"the tokenizer is a BertTokenizer .*{module}"):
        open_encoder(ref)


def test_a_stored_result_is_not_returned_while_code_is_changed(tiny_bert, tiny_glue, tmp_path, monkeypatch):
    monkeypatch.setattr(patches, "doubt_in_a_new_process", lambda *place: "")
    session = local_session(model=tiny_bert, glue=tiny_glue, store=tmp_path / "runs", limit=4)
    session.measure("special-tokens", "rte", init="untrained")
    with replaced(OUTPUT, "forward", nothing), pytest.raises(UserError, match="BertSelfOutput.forward is patched"):
        session.measure("special-tokens", "rte", init="untrained")
    assert session.measure("special-tokens", "rte", init="untrained").reused


@pytest.mark.parametrize(
    ("file", "key"),
    [
        ("config.json", "configuration_files"),
        ("config.json", "transformers_weights"),
        ("tokenizer_config.json", "fast_tokenizer_files"),
    ],
)
def test_settings_that_name_other_files_are_refused(tmp_path, file, key):
    folder = save_bert(tmp_path / "model")
    settings = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps({**settings, key: ["other"]}))
    with pytest.raises(UserError, match=rf"{file} names other files to read \({key}\)"):
        check_folder(folder)


# ---------------------------------------------------------------------- code of the user


USERS_MODEL = """
SETTINGS: dict = {"scale": 1}
class Encoder:
    scale = 1
    names = []
    def forward(self, power=2.0):
        return self.scale**power
def other(self, *, sign=1):
    return sign, POOL
POOL = "mean"
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder on the path, with a module that imports a helper."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "users_helper.py").write_text("SIGN = 1\n")
    (tmp_path / "users_model.py").write_text("import users_helper\n" + USERS_MODEL)
    yield tmp_path
    forget_users_modules()


def forget_users_modules():
    for name in [name for name in sys.modules if name.startswith("users_") or name == "this"]:
        del sys.modules[name]


def imported():
    forget_users_modules()
    importlib.invalidate_caches()
    return importlib.import_module("users_model")


def edit(path):
    time.sleep(0.02)  # longer than the resolution of timestamps
    path.write_text("# edited\n" + path.read_text().replace("1", "-1"))


@pytest.mark.parametrize(
    "digest", [lambda module: code_digest(module.__name__), lambda m: digest_of_classes([m.Encoder])]
)
def test_a_digest_covers_helpers_as_they_were_imported(folder, digest):
    before = digest(imported())
    edit(folder / "users_helper.py")
    assert digest(sys.modules["users_model"]) == before  # the old code is still in memory
    assert digest(imported()) != before
    assert digest(importlib.reload(sys.modules["users_model"])) == digest(imported())


LAZY = (
    "def __getattr__(name):\n    from importlib import import_module\n    return import_module(f'users_lazy.{name}')\n"
)
# How the user's module imports a file, and the files of its package.
IMPORTS = {
    "this.py": ("import this",),  # also a module of Python
    "users_helper.py": ("from importlib import import_module\nSIGN = import_module('users_helper').SIGN",),
    "users_lazy/real.py": ("import users_lazy", ("users_lazy/__init__.py", LAZY)),
    "users_parent/__init__.py": ("from users_parent.child import f", ("users_parent/child.py", "def f(): pass\n")),
    "users_space/inner.py": ("import users_space.inner",),
}


@pytest.mark.parametrize("file", IMPORTS)
def test_a_digest_covers_whatever_the_import_of_a_module_loads(folder, file):
    imports, *more = IMPORTS[file]
    for name, text in (("users_model.py", f"{imports}\n{USERS_MODEL}"), (file, "SIGN = 1\n"), *more):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    before = digest_of_classes([imported().Encoder])
    assert digest_of_classes([imported().Encoder]) == before
    edit(folder / file)
    assert digest_of_classes([imported().Encoder]) != before


@pytest.mark.parametrize("package", ["jinja2", "markupsafe"])
def test_a_digest_covers_versions_of_packages_that_own_code_imports(folder, monkeypatch, package):
    """The package markupsafe is required by jinja2."""
    (folder / "users_helper.py").write_text("def sign():\n    from jinja2 import Template\nSIGN = 1\n")
    module, version = imported(), metadata.version
    before = digest_of_classes([module.Encoder])
    monkeypatch.setattr(metadata, "version", lambda name: "0.0" if name == package else version(name))
    packages.versions.cache_clear()
    assert digest_of_classes([module.Encoder]) != before


@pytest.mark.parametrize(
    "change",
    [
        lambda module, patch: patch.setattr(module, "POOL", "first"),
        lambda module, patch: patch.setitem(module.SETTINGS, "scale", -1),
        lambda module, patch: patch.setattr(module.Encoder, "scale", -1),
        lambda module, patch: patch.setattr(module.Encoder, "names", ["other"]),
        lambda module, patch: patch.setattr(module.Encoder, "forward", module.other),
        lambda module, patch: patch.setattr(module.Encoder.forward, "__code__", module.other.__code__),
        lambda module, patch: patch.setattr(module.Encoder.forward, "__defaults__", (3.0,)),
        lambda module, patch: patch.setitem(module.other.__kwdefaults__, "sign", -1),
    ],
)
def test_a_digest_covers_plain_values_as_they_are_now(folder, monkeypatch, change):
    module = imported()
    before = digest_of_classes([module.Encoder])
    with monkeypatch.context() as patch:
        change(module, patch)
        assert digest_of_classes([module.Encoder]) != before
    assert digest_of_classes([module.Encoder]) == before


OUTSIDE = {
    "import os\nSCALE = float(os.environ.get('SCALE', 1))": "environ",
    "from os import getenv as read": "getenv",
    "from pathlib import Path\nSCALE = Path(__file__).read_text": "read_text",
    "def scale():\n    return open('scale.txt').read()": "open",
    "CALLS = 0\ndef call():\n    global CALLS\n    CALLS += 1": "global CALLS",
    "CACHE: dict = {}": "a container that is filled later",
    "from collections import defaultdict\nCACHE = defaultdict(int)": "a container that is filled later",
}


@pytest.mark.parametrize("text", OUTSIDE)
@pytest.mark.parametrize("file", ["users_model.py", "users_helper.py"])
def test_results_of_code_that_uses_more_than_its_files_are_not_stored(folder, caplog, text, file):
    with (folder / file).open("a") as stream:
        stream.write(text)
    module = imported()
    module.Encoder.model_type = "users"
    families._say.cache_clear()
    assert Family(module.Encoder, module.Encoder, module.Encoder).source.startswith(NO_SOURCE)
    assert code_digest("users_model") is None
    assert f"results of users are not stored, because {file[:-3]} uses {OUTSIDE[text]}" in caplog.text


@pytest.mark.parametrize("file", ["users_model.py", "users_helper.py"])
@pytest.mark.parametrize("keep_time", [False, True])
def test_code_that_was_edited_after_its_import_is_refused(folder, file, keep_time):
    module = imported()
    status = (folder / file).stat()
    edit(folder / file)
    if keep_time:
        os.utime(folder / file, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(UserError, match=rf"{file} was edited while this process was running"):
        digest_of_classes([module.Encoder])


def test_own_code_may_use_packages_that_it_imports(folder, monkeypatch):
    with (folder / "users_helper.py").open("a") as stream:
        stream.write("from tabulate import tabulate\n")
    module = imported()
    monkeypatch.setattr(patches, "own_family", lambda name: Family(module.Encoder, module.Encoder, module.Encoder))
    patches.check_libraries("users")
    monkeypatch.setattr(module, "other", jaxtyped)
    with pytest.raises(UserError, match="users_model.other is patched .code from jaxtyping"):
        patches.check_libraries("users")


def test_own_code_that_was_replaced_by_a_module_that_it_does_not_import_is_refused(folder, monkeypatch):
    (folder / "users_package").mkdir()
    for name, text in (("__init__", ""), ("model", USERS_MODEL), ("later", "def later(self): pass\n")):
        (folder / "users_package" / f"{name}.py").write_text(text)
    importlib.invalidate_caches()
    module = importlib.import_module("users_package.model")
    monkeypatch.setattr(patches, "own_family", lambda name: Family(module.Encoder, module.Encoder, module.Encoder))
    patches.check_libraries("users")
    monkeypatch.setattr(module, "other", importlib.import_module("users_package.later").later)
    with pytest.raises(UserError, match="users_package.model.other is patched .code from users_package.later"):
        patches.check_libraries("users")


def test_a_class_of_the_main_script_may_use_all_that_the_script_has_loaded(monkeypatch, caplog):
    class Encoder:
        __module__, model_type = "__main__", "users"

    monkeypatch.setattr(sys.modules["__main__"], "table", tabulate, raising=False)
    family = Family(Encoder, Encoder, Encoder)
    monkeypatch.setattr(patches, "own_family", lambda name: family)
    patches.check_libraries("users")
    families._say.cache_clear()
    assert family.source.startswith(NO_SOURCE)
    assert "results of users are not stored, because Encoder is not defined in the file of a module" in caplog.text


def test_a_module_of_a_user_does_not_depend_on_the_script_that_imports_it(folder, monkeypatch):
    """Packages such as datasets add a second name for the main module while they are imported."""
    module = imported()
    monkeypatch.setitem(sys.modules, "__mp_main__", sys.modules["__main__"])
    monkeypatch.setitem(code.IMPORTED.importers, "__mp_main__", ["users_model"])
    code._reached.cache_clear()
    assert Family(module.Encoder, module.Encoder, module.Encoder).modules == {"users_model", "users_helper"}


def test_code_without_a_source_file_is_never_stored():
    namespace = {"__name__": "nowhere"}
    exec("class Config:\n    model_type = 'x'\nclass Encoder:\n    def forward(self): return 1", namespace)
    one, other = (Family(namespace["Config"], namespace["Encoder"], namespace["Encoder"]) for _ in range(2))
    assert one.source.startswith(NO_SOURCE)
    assert one.source != other.source
    assert not Key({"checkpoint": f"{one.source} 12ab"}, {"code": "1f"}).identifies_code
    assert not Key({}, {"code": None}).identifies_code
    assert Key({}, {"code": "1f"}).identifies_code


def test_a_task_whose_file_was_edited_is_refused(tiny_bert, tmp_path):
    file = tmp_path / "dev.csv"
    file.write_text("text,label\na good film,a\na bad film,b\n")
    session = local_session(
        model=tiny_bert, tasks=[OwnTask("own", dev=file, train=file)], store=tmp_path / "runs", limit=None
    )
    session.measure("special-tokens", "own", init="untrained")
    status = file.stat()
    file.write_text(file.read_text().replace("film", "book"))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(UserError, match="dev.csv was edited after own was created"):
        session.measure("special-tokens", "own", init="untrained")


@pytest.mark.parametrize("name", patches.TABLES)
def test_every_table_is_found_in_its_file(name):
    """Otherwise, its entries would not be checked."""
    module, definition = patches.TABLES[name]
    importlib.import_module(module)
    assert declared(module, definition)
