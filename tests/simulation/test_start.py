"""The command line is vLLM's: what it accepts, what it refuses and with which words."""

import subprocess
import sys
import urllib.error

import pytest

from simserver import SPECULATION, VLLM, SimServer, free_port, vllm
from specfleet.simulation.commandline import Refused, Speculation, parse
from specfleet.simulation.dials import Dials, changed, from_environment

SCHEDULED = '{"method":"eagle3","model":"d","num_speculative_tokens":5,"num_speculative_tokens_per_batch_size":%s}'


def test_a_full_command_line_is_understood_and_the_rest_ignored() -> None:
    options = parse(
        [
            *("Qwen/Qwen3-8B", "--served-model-name", "q", "alias", "--port=9000", "--speculative-config", SPECULATION),
            *(
                "--max_num_seqs",
                "64",
                "--max-model-len",
                "32k",
                "--shutdown-timeout",
                "30",
                "-tp",
                "4",
                "--revision",
                "a1",
            ),
            *(
                "--attention-backend",
                "ROCM_AITER_FA",
                "--enforce-eager",
                "--no-enable-prefix-caching",
                "--api-key",
                "s",
            ),
        ],
        {},
    )
    assert options.served_names == ("q", "alias")
    assert options.speculation == Speculation("eagle3", 3, "drafter")
    assert (options.port, options.max_num_seqs, options.max_model_len) == (9000, 64, 32000)
    assert (options.shutdown_timeout, options.api_keys) == (30, ("s",))


def test_defaults_are_vllms() -> None:
    options = parse(["m"], {"VLLM_API_KEY": "k"})
    assert (options.port, options.shutdown_timeout, options.max_num_seqs) == (8000, 0, 256)
    assert (options.served_names, options.speculation, options.api_keys) == (("m",), None, ("k",))


@pytest.mark.parametrize(
    ("config", "speculation"),
    [
        ('{"model":"org/x-eagle3","num_speculative_tokens":2}', Speculation("eagle3", 2, "org/x-eagle3")),
        ('{"method":"deepseek_mtp","num_speculative_tokens":2}', Speculation("mtp", 2)),
        ('{"method":"ngram","num_speculative_tokens":3,"prompt_lookup_max":5}', Speculation("ngram", 3)),
        (SCHEDULED % "[[1,16,5],[17,64,2]]", Speculation("eagle3", 5, "d", ((1, 16, 5), (17, 64, 2)))),
    ],
)
def test_speculative_configs(config: str, speculation: Speculation) -> None:
    assert parse(["m", "--speculative-config", config], {}).speculation == speculation


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--speculative-config", '{"method":'], "argument --speculative-config"),
        (["--speculative-config", "[]"], "argument --speculative-config"),
        (["--speculative-config", '{"method":"magic","num_speculative_tokens":3}'], "Input should be 'mtp'"),
        (["--speculative-config", '{"method":"eagle3","num_speculative_tokens":3}'], "without speculative model"),
        (["--speculative-config", '{"method":"eagle3","model":"d"}'], "num_speculative_tokens must be provided"),
        (["--speculative-config", '{"method":"mtp","num_speculative_tokens":0}'], "greater than zero"),
        (["--speculative-config", SCHEDULED % "[[2,4,1]]"], "start at 1"),
        (["--speculative-config", SCHEDULED % "[[1,4,1],[4,8,1]]"], "do not overlap"),
        (["--port", "none"], "argument --port"),
        (["--per-request-spec-decode-metrics", "summary"], "requires speculative decoding"),
    ],
)
def test_what_vllm_would_not_start_with_is_refused(flags: list[str], words: str) -> None:
    with pytest.raises(Refused, match=words):
        parse(["m", *flags], {})


def test_a_refused_config_exits_1_with_the_reason() -> None:
    process = vllm("serve", "m", "--speculative-config", '{"method":"magic","num_speculative_tokens":3}')
    assert "1 validation error for SpeculativeConfig" in process.communicate(timeout=10)[1]
    assert process.returncode == 1


@pytest.mark.parametrize("model", ["org/crash-on-load", "m"])
def test_a_model_that_cannot_be_loaded_exits_1(model: str) -> None:
    draft = SPECULATION if model != "m" else SPECULATION.replace("drafter", "crash-on-load")
    process = vllm("serve", model, "--speculative-config", draft, "--port", str(free_port()))
    assert "Engine core initialization failed" in process.communicate(timeout=10)[1]
    assert process.returncode == 1


def test_the_port_opens_only_once_loaded_and_sigterm_ends_loading() -> None:
    port = free_port()
    process = vllm("serve", "m", "--port", str(port), VLLM_SIM_START_SECONDS="60")
    assert process.stdout is not None
    assert "Loading m" in process.stdout.readline()
    server = SimServer.__new__(SimServer)
    server.url = f"http://127.0.0.1:{port}"
    with pytest.raises(urllib.error.URLError, match="refused"):
        server.get("/health")
    process.terminate()
    assert process.wait(5) == 0
    process.communicate()


def test_dials_come_from_the_environment() -> None:
    assert from_environment({"VLLM_SIM_ACCEPTANCE": "0.5", "VLLM_SIM_HANG": "1", "VLLM_SIM_METRICS": "huge"}) == Dials(
        acceptance=0.5, hang=True, metrics="huge"
    )
    assert from_environment({"VLLM_SIM_KV": "0.8"}) == Dials(kv=0.8)


@pytest.mark.parametrize(
    "change", [{"speed": 0}, {"errors": 2}, {"kv": 0}, {"kv": 1.5}, {"hang": "maybe"}, {"speed": True}, {"nothing": 1}]
)
def test_dials_that_make_no_sense_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"."):
        changed(Dials(), change)


def test_the_server_needs_only_aiohttp() -> None:
    """It runs on Debian's python3 with python3-aiohttp: nothing of the operator's own dependencies may come along."""
    code = (
        f"import sys; sys.path[:0] = [{str(VLLM.parent)!r}]; import server; "
        "print([name for name in ('pydantic', 'kopf', 'kubernetes', 'prometheus_client') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
