"""The annotation page over HTTP: every key is on disk at once, work goes on where it stopped, seconds stay blind."""

import base64
import contextlib
import http.client
import json
import shutil
import socket
import threading
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from patterned import pattern_set

from bertsecrets.cli.main import main
from bertsecrets.errors import UserError
from bertsecrets.lab.annotation import server as annotation_server
from bertsecrets.lab.annotation.colours import shades
from bertsecrets.lab.annotation.server import Server
from bertsecrets.lab.annotation.session import Annotation, exclusive
from bertsecrets.lab.commands.patterns import summary
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.map_set import ANNOTATIONS, MapSet


@pytest.fixture
def folder(tmp_path) -> Path:
    """An unlabelled set of ten maps."""
    pattern_set(labelled=False).save(tmp_path / "set")
    return tmp_path / "set"


@pytest.fixture
def serve():
    """Serves an annotator's work until the test ends."""
    servers = []

    def start(work: Annotation) -> Server:
        server = Server(work)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def ask(server: Server, path: str, body=None, **headers) -> tuple[int, dict]:
    connection = http.client.HTTPConnection(*server.server_address)
    try:
        data = body if body is None or isinstance(body, str) else json.dumps(body)
        connection.request("GET" if body is None else "POST", f"/{server.token}{path}", data, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_every_label_is_on_disk_at_once_and_undo_takes_it_back(folder, serve):
    work = Annotation.open(folder, "Anna")
    server = serve(work)
    _, state = ask(server, "/state")
    assert (state["total"], state["done"], state["next"], state["annotator"]) == (10, 0, 0, "Anna")
    status, state = ask(server, "/label", {"place": 0, "label": "block"})
    assert (status, state["done"], state["next"], state["counts"]["block"]) == (200, 1, 1, 1)
    on_disk = MapSet.load(folder)
    assert [on_disk.labels[i] for i in work.order] == ["block", *[None] * 9]
    assert json.loads((folder / "annotators.json").read_text()) == {"label": "Anna"}
    _, state = ask(server, "/label", {"place": 0, "label": "diagonal"})  # a second thought
    assert MapSet.load(folder).labels[work.order[0]] == "diagonal"
    _, state = ask(server, "/undo", {})
    assert (state["next"], MapSet.load(folder).labels[work.order[0]]) == (0, "block")
    _, state = ask(server, "/undo", {})
    assert (state["done"], set(MapSet.load(folder).labels)) == (0, {None})
    status, state = ask(server, "/undo", {})
    assert (status, state["done"], state["undo"]) == (200, 0, 0)


def test_maps_are_shown_as_on_the_sheets(folder, serve):
    work = Annotation.open(folder)
    server = serve(work)
    for place in range(10):
        _, shown = ask(server, f"/map/{place}")
        each = work.maps[work.order[place]]
        cells = np.frombuffer(base64.b64decode(shown["shades"]), dtype=np.uint8).reshape(each.tokens, each.tokens)
        np.testing.assert_array_equal(cells, shades(each.values))
        assert shown["separators"] == list(each.separators)
        assert sum(shown["shares"]) == pytest.approx(1, abs=0.01)
        assert not {"name", "layer", "head", "task"} & set(shown)


def test_work_goes_on_where_it_stopped(folder):
    work = Annotation.open(folder, "Anna")
    assert [work.label(place, "vertical") for place in (0, 1, 3)] == [1, 2, 4]
    again = Annotation.open(folder)
    assert (again.annotator, again.done, again.open_place(), again.order) == ("Anna", 3, 2, work.order)
    assert again.label(2, "block") == 4
    for place in range(4, 10):
        again.label(place, CLASSES[place % 5])
    assert (again.done, again.open_place()) == (10, 9)
    assert summary(again).startswith("10 of 10 labelled: ")


def test_the_second_annotator_is_blind_until_the_end(folder, serve):
    pattern_set().save(folder)
    first = pattern_set().labels
    work = Annotation.open(folder, "Ben", second=6)
    server = serve(work)
    assert work.order != Annotation.open(folder, second=6).order[::-1]
    assert len(set(work.order)) == 6
    for place in range(6):
        assert ask(server, f"/map/{place}")[1]["label"] is None
        assert ask(server, "/state")[1]["agreement"] is None
        right = first[work.order[place]]
        _, state = ask(server, "/label", {"place": place, "label": right if place else "block"})
    agreed = first[work.order[0]] == "block"
    assert f"same label on {'100%' if agreed else '83%'} of 6 maps" in state["agreement"]
    assert state["agreement"].startswith("Cohen's kappa ")
    found = MapSet.load(folder)
    assert found.labels == first
    assert sum(label is not None for label in found.second_labels) == 6
    assert state["agreement"] in summary(work)


def test_a_larger_second_subset_goes_on_with_the_smaller_one(folder):
    assert Annotation.open(folder, second=8).order[:5] == Annotation.open(folder, second=5).order


def test_annotators_are_not_mixed_up(folder):
    Annotation.open(folder, "Anna").label(0, "block")
    with pytest.raises(UserError, match="the labels in .* are Anna's, not Ben's: continue .* --second N, or .* --anew"):
        Annotation.open(folder, "Ben")
    with pytest.raises(UserError, match="Anna is the first annotator of"):
        Annotation.open(folder, "Anna", second=3)
    Annotation.open(folder, "Ben", second=3).label(0, "block")
    with pytest.raises(UserError, match="the second labels in .* are Ben's"):
        Annotation.open(folder, "Clara", second=3)
    (folder / "annotators.json").write_text("{")
    with pytest.raises(UserError, match="annotators.json is damaged"):
        Annotation.open(folder)


def test_labels_are_replaced_only_when_asked_and_only_by_the_first_key(folder):
    pattern_set().relabelled({"tiny_3": "block", "tiny_4": "block"}, second=True).save(folder)
    with pytest.raises(UserError, match="the second labels in .* are someone unnamed's, not Ben's"):
        Annotation.open(folder, "Ben", second=10)
    assert Annotation.open(folder, second=10).done == 2
    work = Annotation.open(folder, "Ben", second=10, anew=True)
    assert (work.done, sum(label is not None for label in MapSet.load(folder).second_labels)) == (0, 2)
    work.label(0, "diagonal")
    found = MapSet.load(folder)
    assert [label for label in found.second_labels if label] == ["diagonal"]
    assert found.labels == pattern_set().labels
    assert Annotation.open(folder, "Ben", second=10).done == 1


@pytest.mark.parametrize("count", [0, 11])
def test_impossible_subsets_are_refused(folder, count):
    with pytest.raises(UserError, match=f"--second {count} of 10 maps: give 1 to 10"):
        Annotation.open(folder, second=count)


def test_a_file_changed_by_others_is_never_overwritten(folder, serve):
    server = serve(Annotation.open(folder))
    changed = MapSet.load(folder).relabelled({"tiny_4": "block"})
    changed.save_annotations(folder)
    status, answer = ask(server, "/label", {"place": 0, "label": "block"})
    assert (status, "was changed by another program" in answer["error"]) == (409, True)
    assert MapSet.load(folder).labels == changed.labels
    shutil.rmtree(folder)
    assert ask(server, "/label", {"place": 0, "label": "block"})[0] == 409
    assert ask(server, "/state")[1]["done"] == 0


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/map/10", None, 404),
        ("/map/-1", None, 404),
        ("/elsewhere", {}, 404),
        ("/label", {"place": 10, "label": "block"}, 409),
        ("/label", {"place": 0, "label": "x"}, 409),
        ("/label", {"label": "block"}, 400),
        ("/label", "[]", 400),
        ("/label", "{", 400),
        ("/label", " " * 20_000, 400),
    ],
)
def test_what_is_not_understood_changes_nothing(folder, serve, path, body, status):
    before = (folder / ANNOTATIONS).read_bytes()
    found, answer = ask(serve(Annotation.open(folder)), path, body)
    assert (found, "error" in answer) == (status, True)
    assert (folder / ANNOTATIONS).read_bytes() == before


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}])
def test_other_sites_cannot_label(folder, serve, headers):
    server = serve(Annotation.open(folder))
    assert ask(server, "/label", {"place": 0, "label": "block"}, **headers)[0] == 403
    assert ask(server, "/state", **headers)[0] == 403
    assert ask(server, "/state")[1]["done"] == 0


def test_nobody_without_the_token_reads_or_labels(folder, serve):
    server = serve(Annotation.open(folder))
    assert server.token in server.url
    assert len(server.token) >= 32
    host = f"Host: 127.0.0.1:{server.server_address[1]}\r\n"
    for path in ("/", "/state", "/map/0", f"/{server.token[:-1]}/", f"/{server.token}x/state", "/%00/", "//"):
        status, answer = raw(server, f"GET {path} HTTP/1.1\r\n{host}\r\n")
        assert (status, "lacks its token" in answer["error"]) == (403, True)
    body = '{"place": 0, "label": "block"}'
    assert raw(server, f"POST /label HTTP/1.1\r\n{host}Content-Length: {len(body)}\r\n\r\n{body}")[0] == 403
    assert ask(server, "/state")[1]["done"] == 0
    assert serve(Annotation.open(folder)).token != server.token


def test_no_other_page_may_frame_it(folder, serve):
    server = serve(Annotation.open(folder))
    with urllib.request.urlopen(server.url) as answer:
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert answer.headers["Referrer-Policy"] == "no-referrer"


# T is the token, H the right host header.
BAD_REQUESTS = {
    "not a number": ("POST /T/label HTTP/1.1\r\nH", '{"place": NaN, "label": "block"}', 400),
    "a truth for a number": ("POST /T/label HTTP/1.1\r\nH", '{"place": true, "label": "block"}', 400),
    "a list for a label": ("POST /T/label HTTP/1.1\r\nH", '{"place": 0, "label": ["block"]}', 400),
    "9000 brackets": ("POST /T/label HTTP/1.1\r\nH", "[" * 9000, 400),
    "5000 digits": ("POST /T/label HTTP/1.1\r\nH", f'{{"place": {"9" * 5000}, "label": "block"}}', 400),
    "not UTF-8": ("POST /T/label HTTP/1.1\r\nH", "\udcff\udcfe", 400),
    "a map with 5000 digits": (f"GET /T/map/{'9' * 5000} HTTP/1.1\r\nH\r\n", None, 404),
    "a length of 5000 digits": (f"POST /T/label HTTP/1.1\r\nHContent-Length: {'9' * 5000}\r\n\r\n", None, 400),
    "no length": ("POST /T/label HTTP/1.1\r\nH\r\n", None, 400),
    "two lengths": ("POST /T/label HTTP/1.1\r\nHContent-Length: 2\r\n", '{"place": 0, "label": "block"}', 400),
    "two hosts": ("GET /T/state HTTP/1.1\r\nHHost: evil.example\r\n\r\n", None, 403),
    "no host": ("GET /T/state HTTP/1.1\r\n\r\n", None, 403),
    "an invented method": ("LABEL /T/label HTTP/1.1\r\nH\r\n", None, 405),
    "no HTTP": ("\x16\x03\x01 hello\r\n\r\n", None, 400),
    "a long line": (f"GET /T/{'a' * 70_000} HTTP/1.1\r\nH\r\n", None, 414),
}


@pytest.mark.parametrize("name", BAD_REQUESTS)
def test_every_bad_request_has_an_answer_of_one_line(folder, serve, capfd, name):
    server = serve(Annotation.open(folder))
    before = (folder / ANNOTATIONS).read_bytes()
    head, body, expected = BAD_REQUESTS[name]
    port = str(server.server_address[1])
    head = head.replace("/T/", f"/{server.token}/")
    head = head.replace("HTTP/1.1\r\nH", f"HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n", 1)
    if body is not None:
        head += f"Content-Length: {len(body)}\r\n\r\n{body}"
    status, answer = raw(server, head)
    assert status == expected
    assert "\n" not in answer["error"]
    assert (folder / ANNOTATIONS).read_bytes() == before
    assert ask(server, "/state")[0] == 200
    assert capfd.readouterr() == ("", "")


def raw(server: Server, request: str) -> tuple[int, dict]:
    """The status and the JSON with which the server answers these very characters."""
    with socket.create_connection(server.server_address, timeout=20) as connection:
        connection.sendall(request.encode("utf-8", "surrogateescape"))
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        return answer.status, json.loads(answer.read())


@pytest.mark.slow
def test_requests_that_never_end_are_dropped_and_keep_no_threads(folder, serve, monkeypatch, capfd):
    monkeypatch.setattr(annotation_server, "SECONDS", 1.5)
    server = serve(Annotation.open(folder))
    started = threading.active_count()
    waiting = [socket.create_connection(server.server_address, timeout=20) for _ in range(200)]
    for connection in waiting:
        with contextlib.suppress(ConnectionError):
            connection.sendall(b"POST /label HTTP/1.1\r\nContent-Le")
    assert threading.active_count() <= started + 40
    for connection in waiting:
        with contextlib.suppress(ConnectionError):
            assert connection.recv(10) == b""  # closed by the server
        connection.close()
    assert ask(server, "/state")[0] == 200
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_a_request_that_drips_is_dropped(folder, serve, monkeypatch):
    """Each byte comes in time, but the whole does not."""
    monkeypatch.setattr(annotation_server, "SECONDS", 0.3)
    server = serve(Annotation.open(folder))
    with socket.create_connection(server.server_address, timeout=20) as connection:
        with pytest.raises(ConnectionError):
            for _ in range(1000):
                connection.sendall(b"G")
                time.sleep(0.02)


def test_a_port_in_use_is_named(folder, serve):
    port = serve(Annotation.open(folder)).server_address[1]
    with pytest.raises(UserError, match=f"port {port} is in use: name another with --port"):
        Server(Annotation.open(folder), port)
    with pytest.raises(UserError, match="--port 70000 cannot be used"):
        Server(Annotation.open(folder), 70000)


def test_one_process_at_a_time(folder):
    with exclusive(folder):
        with pytest.raises(UserError, match="is being annotated by another process"):
            with exclusive(folder):
                pass
    with exclusive(folder):
        pattern_set(3).save(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["annotations.tsv", "maps-0001.npz"]


def test_the_command_draws_a_set_and_refuses_what_it_cannot_do(tiny_bert, tiny_glue, tmp_path, capsys):
    store = ["--glue", str(tiny_glue), "--store", str(tmp_path / "store"), "--allow-unofficial-data", "--offline"]
    draw = ["--model", str(tiny_bert), "--task", "rte", "--per-task", "0", "--pretrained-per-task", "7", *store]
    set_folder = tmp_path / "set"
    assert main(["lab", "annotate", str(set_folder), *draw, "--draw-only"]) == 0
    assert len(MapSet.load(set_folder)) == 7
    for arguments, message in [
        ([str(set_folder), *draw], "already holds a set"),
        ([str(tmp_path / "absent")], "no set of maps in"),
        ([str(tmp_path)], "no maps in"),
        ([str(tmp_path), *draw], "holds other files"),
        ([str(set_folder / ANNOTATIONS), *draw, "--draw-only"], "a file stands where a folder is needed"),
        ([str(tmp_path / "new"), *draw[:4], "--per-task", "-1"], "must be 0 or more"),
        ([str(set_folder), "--second", "9"], "--second 9 of 7 maps"),
        ([str(set_folder), "--port", "-1"], "--port -1 cannot be used"),
    ]:
        assert main(["lab", "annotate", *arguments]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    assert main(["lab", "sheets", str(set_folder), str(tmp_path / "sheets"), "--count", "5"]) == 0
    assert len((tmp_path / "sheets" / "index.tsv").read_text().splitlines()) == 6
