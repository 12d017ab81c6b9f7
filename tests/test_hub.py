"""Downloads from the hub: every error is one line, cached files need no requests, and altered files are rejected.

The real client talks to a fake hub on the loopback address.
"""

import errno
import io
import os
import ssl
import subprocess
import sys
import time
from pathlib import Path

import huggingface_hub
import pytest
from hub import COMMIT, Fault, Hub, forget_commits, serving
from huggingface_hub import constants

from bertsecrets.errors import UserError
from bertsecrets.models import families, locations
from bertsecrets.models.configuration import open_config
from bertsecrets.models.locations import locate
from bertsecrets.models.opening import open_classifier
from bertsecrets.store.files import file_sha256
from bertsecrets.texts import glue
from bertsecrets.texts.glue import Source
from bertsecrets.texts.glue_folder import write_tasks
from bertsecrets.texts.tasks import TASKS, task

TESTS = Path(__file__).parent
MODEL = "someone/tiny-bert"
TOKEN = "hf_ThisIsASecretThatNobodyMayRead"


@pytest.fixture
def hub(tiny_bert, tmp_path, monkeypatch):
    with serving() as started:
        started.add(MODEL, tiny_bert)
        for name, value in {
            "ENDPOINT": started.url,
            "HUGGINGFACE_CO_URL_TEMPLATE": started.url + "/{repo_id}/resolve/{revision}/{filename}",
            "HF_HUB_CACHE": str(tmp_path / "cache"),
            "HF_HUB_OFFLINE": False,
            "HF_HUB_DOWNLOAD_TIMEOUT": 0.2,
            "HF_HUB_DISABLE_XET": True,
        }.items():
            monkeypatch.setattr(constants, name, value)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        huggingface_hub.utils.close_session()
        forget_commits()
        yield started
        huggingface_hub.utils.close_session()
        forget_commits()


@pytest.fixture
def waits(monkeypatch):
    seconds: list[float] = []
    monkeypatch.setattr(time, "sleep", seconds.append)
    return seconds


def refused(name: str = MODEL) -> str:
    with pytest.raises(UserError) as error:
        open_classifier(locate(name), task("rte"))
    assert "\n" not in str(error.value)
    assert TOKEN not in str(error.value)
    return str(error.value)


def failing(error: Exception):
    def download(*_args, **_options):
        raise error

    return download


REFUSALS = {
    "no login": (Fault("api", 401), "cannot download model someone/tiny-bert: Client error '401"),
    "no repository": (Fault("api", 404, {"X-Error-Code": "RepoNotFound"}), "Repository Not Found"),
    "connection cut": (Fault("GET model.safetensors", cut=True), "cannot download model someone/tiny-bert: "),
    "altered weights": (
        Fault("GET model.safetensors", altered=True),
        "is not the published model.safetensors of model someone/tiny-bert (damaged or modified): delete it and run",
    ),
    "altered vocabulary": (Fault("GET tokenizer.json", altered=True), "is not the published tokenizer.json"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_each_refusal_is_one_line(hub: Hub, waits, name):
    fault, line = REFUSALS[name]
    hub.faults.append(fault)
    assert line in refused()


def test_an_unknown_name_or_revision_is_one_line(hub: Hub):
    assert "(did you mean bert-base-uncased" in refused("bert-base-uncasd")
    assert "Revision Not Found" in refused(f"{MODEL}@{'a' * 40}")


def test_a_hub_that_is_gone_is_one_line(hub: Hub, waits):
    hub.shutdown()
    hub.server_close()
    assert refused().endswith(locations.MODEL_ADVICE)


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_a_missing_file_of_certificates_is_named_with_its_variable(hub: Hub, monkeypatch, variable):
    monkeypatch.setenv(variable, "/nonexistent/ca.pem")
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", failing(FileNotFoundError(2, "No such file or directory")))
    assert f"{variable} names /nonexistent/ca.pem, which does not exist: correct or unset the variable" in refused()


@pytest.mark.parametrize(("variable", "value"), [("REQUESTS_CA_BUNDLE", __file__), ("CURL_CA_BUNDLE", "")])
def test_an_untrusted_certificate_names_the_variable_that_is_read(hub: Hub, monkeypatch, variable, value):
    error = ConnectionError("no")
    error.__cause__ = ssl.SSLCertVerificationError("self-signed")
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", failing(error))
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, value)
    line = refused()
    assert f"set SSL_CERT_FILE to your organisation's certificates (huggingface_hub does not read {variable})" in line


@pytest.mark.parametrize(
    "error", [AttributeError("no attribute 'request'"), OSError(errno.EBADF, "Bad file descriptor")]
)
@pytest.mark.parametrize("gone", [False, True])
def test_an_error_of_the_client_is_explained_by_another_request(hub: Hub, monkeypatch, error, gone):
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", failing(error))
    if gone:
        hub.faults.append(Fault("api", 503))
    assert ("503" in (line := refused())) == gone
    assert ("the connection was lost" in line) == (not gone)
    assert str(error) not in line


@pytest.mark.parametrize("gone", [False, True])
def test_cached_files_need_no_request(hub: Hub, gone):
    first = locate(MODEL).identity()
    open_classifier(locate(MODEL), task("rte"))
    assert first == f"{MODEL}@{COMMIT}"
    hub.asked.clear()
    hub.faults += [Fault("", 500)]
    forget_commits()
    if gone:
        hub.shutdown()
        hub.server_close()
    assert open_classifier(locate(MODEL), task("rte")).fingerprint == first
    assert locate(MODEL).folder().is_dir()
    assert hub.asked == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "off", "shown"), [(Terminal, "", True), (Terminal, "1", False), (io.StringIO, "", False)]
)
def test_progress_is_shown_on_a_terminal_alone(hub: Hub, monkeypatch, stream, off, shown):
    monkeypatch.setenv("TQDM_DISABLE", off)
    open_config(locate(MODEL))  # disables the progress bars of transformers, as at every start
    assert not any(asked.endswith(".safetensors") for asked in hub.asked)  # the configuration alone
    seen = stream()
    monkeypatch.setattr(sys, "stderr", seen)
    open_classifier(locate(MODEL), task("rte"))
    assert ("100%" in seen.getvalue()) == shown
    assert huggingface_hub.utils.are_progress_bars_disabled()


def test_pickled_weights_of_the_hub_are_not_fetched(hub: Hub, own_bert):
    (own_bert / "model.safetensors").rename(own_bert / "pytorch_model.bin")
    hub.add("someone/pickled", own_bert)
    assert "has no model.safetensors on the hub" in refused("someone/pickled")
    assert not any(asked.endswith(".bin") for asked in hub.asked)


def test_a_file_that_changed_in_the_cache_is_refused_and_named(hub: Hub):
    open_classifier(locate(MODEL), task("rte"))
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        file = Path(os.path.realpath(locate(MODEL).folder() / name))
        whole = file.read_bytes()
        file.write_bytes(whole[:9] + bytes([whole[9] ^ 1]) + whole[10:])
        assert refused().startswith(f"{file} is not the published {name} of model {MODEL}")
        file.unlink()  # as the error recommends
        open_classifier(locate(MODEL), task("rte"))


def test_a_pinned_model_is_believed_only_with_its_published_files(hub: Hub, own_bert, monkeypatch):
    """The hub itself serves other weights at the pinned commit, with a matching digest."""
    for name in ("README.md", "vocab.txt"):
        (own_bert / name).write_text("unused")
    hub.add(MODEL, own_bert)
    files = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
    monkeypatch.setitem(locations.PINNED_COMMITS, MODEL, COMMIT)
    monkeypatch.setitem(locations.MODEL_SHA256, MODEL, {name: file_sha256(own_bert / name) for name in files})
    open_classifier(locate(MODEL), task("rte"))
    assert not any(asked.endswith(("README.md", "vocab.txt")) for asked in hub.asked)
    monkeypatch.setitem(locations.MODEL_SHA256[MODEL], "model.safetensors", "0" * 64)
    assert "is not the published model.safetensors" in refused()


def test_all_pinned_models_have_published_digests():
    assert set(locations.MODEL_SHA256) == set(locations.PINNED_COMMITS)
    for files in (*locations.MODEL_SHA256.values(), families.MINILM_SHA256, families.MPNET_SHA256, glue.GLUE_SHA256):
        assert all(len(sha256) == 64 for sha256 in files.values())
        assert files is glue.GLUE_SHA256 or {"config.json", "model.safetensors", "tokenizer.json"} <= set(files)
    assert all(len(sha256) == 64 for sha256 in families.MPNET_PARTS_SHA256.values())
    stems = {f"{glue_task.name}/{split}" for glue_task in TASKS.values() for split in ("train", glue_task.dev_split)}
    assert {name.rsplit("-", 3)[0] for name in glue.GLUE_SHA256} == stems


# ---------------------------------------------------------------------- data


@pytest.fixture
def data(hub: Hub, tmp_path, monkeypatch) -> Path:
    """RTE in the hub's format, in a folder that the fake hub serves."""
    import datasets

    folder = tmp_path / "glue"
    (folder / "rte").mkdir(parents=True)
    names = datasets.ClassLabel(names=["entailment", "not_entailment"])
    features = {"sentence1": datasets.Value("string"), "sentence2": datasets.Value("string"), "label": names}
    for split, rows in (("train", 5), ("validation", 3)):
        rows = {"sentence1": ["One."] * rows, "sentence2": ["Two."] * rows, "label": [0] * rows}
        table = datasets.Dataset.from_dict(rows, features=datasets.Features(features))
        table.to_parquet(folder / "rte" / f"{split}-00000-of-00001.parquet")
    publish(hub, folder, monkeypatch)
    return folder


def publish(hub: Hub, folder: Path, monkeypatch) -> None:
    hub.add(glue.GLUE_HUB, folder, "datasets", glue.GLUE_REVISION)
    for file in (folder / "rte").iterdir():
        monkeypatch.setitem(glue.GLUE_SHA256, f"rte/{file.name}", file_sha256(file))


def test_data_are_fetched_once(hub: Hub, data):
    split = glue.load_hub(task("rte"), "dev", offline=False)
    assert (len(split), split.labels[0], split.sentence2[0]) == (3, "entailment", "Two.")
    assert not any("train" in asked for asked in hub.asked)
    hub.shutdown()
    hub.server_close()
    for offline in (False, True):
        again = glue.load_hub(task("rte"), "dev", offline)
        assert again.fingerprint == split.fingerprint


def test_a_task_of_the_hub_becomes_a_glue_folder_with_the_same_rows(hub: Hub, data, tmp_path):
    written = write_tasks(Source(allow_unofficial=True), [task("rte")], tmp_path / "written")
    read = [Source(glue=tmp_path / "written", allow_unofficial=True).split(task("rte"), name) for name in glue.SPLITS]
    assert [split.fingerprint for split in read] == [split.fingerprint for split in written]


def test_altered_data_are_refused_and_named(hub: Hub, data):
    hub.faults.append(Fault("GET rte/validation-00000-of-00001.parquet", altered=True))
    with pytest.raises(UserError, match=r"is not the published validation-.* of GLUE's RTE .*: delete it and run"):
        glue.load_hub(task("rte"), "dev", offline=False)


# ---------------------------------------------------------------------- command line


TWICE = """
import sys, urllib.request
from huggingface_hub.constants import ENDPOINT
from bertsecrets.cli.main import main
from hub import forget_commits

codes = [main(sys.argv[1:])]
forget_commits()
urllib.request.urlopen(ENDPOINT + "/api/models/between/runs")
codes += [main(sys.argv[1:])]
sys.exit(codes != [0, 0])
"""


@pytest.mark.slow
def test_fetch_twice_by_the_command_line(hub: Hub, tiny_glue, tiny_bert, tmp_path):
    """Nothing is patched: the hub's address and the cache come from the environment."""
    hub.add("between/runs", tiny_bert)
    environment = {key: value for key, value in os.environ.items() if not key.endswith("_OFFLINE")}
    environment |= {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home")}
    environment |= {"PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS / "support")])}
    call = ["fetch", "--model", MODEL, "--task", "rte", "--glue", str(tiny_glue), "--allow-unofficial-data"]
    call += ["--store", str(tmp_path / "runs")]
    command = [sys.executable, "-c", TWICE, *call]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count(f"{MODEL}@{COMMIT}") == 2
    assert hub.asked.index("GET /api/models/between/runs") == len(hub.asked) - 1 > 0
