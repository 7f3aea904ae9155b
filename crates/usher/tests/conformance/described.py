"""Calls everything that the description of the API describes, with what schemathesis makes of it.

Arguments: where the API is, its token, the phases of schemathesis, and how many examples of each
call. Nothing may be answered with a fault of the node: no status from 500 on but 501, which names a
part that is not built.

Calls are made with ids of things that are there; unknown ones are refused before anything else is
looked at. What a call deletes is made again before the next one.
"""

import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

SEED = "5"


def call(method, path, body=None):
    base, token = os.environ["USHER_API"], os.environ["USHER_TOKEN"]
    request = urllib.request.Request(base + path, method=method,
                                     headers={"Authorization": f"Bearer {token}"},
                                     data=None if body is None else json.dumps(body).encode())
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["result"]


def things():
    """A path parameter, where its things are listed, and what makes one."""
    account = call("GET", "/accounts")[0]["id"]
    zone = call("GET", "/zones?name=example.com")[0]["id"]
    base = f"/accounts/{account}/load_balancers"
    origins = [{"name": "a", "address": "192.0.2.1"}]
    yield "account_id", "/accounts", None
    yield "zone_id", "/zones?name=example.com", None
    yield "monitor_id", f"{base}/monitors", lambda: {"type": "http", "description": "kept"}
    yield "pool_id", f"{base}/pools", lambda: {"name": "kept", "origins": origins}
    yield "monitor_group_id", f"{base}/monitor_groups", lambda: {
        "description": "kept", "members": [{
            "monitor_id": one("monitor_id"), "enabled": True, "monitoring_only": False,
            "must_be_healthy": False}]}
    yield "load_balancer_id", f"/zones/{zone}/load_balancers", lambda: {
        "name": "kept.example.com", "proxied": True,
        "default_pools": [one("pool_id")], "fallback_pool": one("pool_id")}


def one(name):
    """The id of a thing that is there."""
    for parameter, path, body in things():
        if parameter == name:
            found = call("GET", path)
            return found[0]["id"] if found else call("POST", path, body())["id"]
    return None


def hooks():
    import schemathesis

    @schemathesis.hook
    def before_call(context, case, kwargs):
        for name in case.path_parameters or {}:
            case.path_parameters[name] = one(name) or case.path_parameters[name]

    @schemathesis.check
    def no_fault_of_the_node(context, response, case):
        if response.status_code >= 500 and response.status_code != 501:
            raise AssertionError(f"{response.status_code}: {response.text}")


def main(base, token, phases, examples):
    os.environ.update(USHER_API=base, USHER_TOKEN=token)
    with urllib.request.urlopen(urllib.request.Request(
            base + "/openapi.json", headers={"Authorization": f"Bearer {token}"})) as answer:
        description = answer.read()
    here = Path(__file__).resolve()
    with tempfile.TemporaryDirectory(prefix="usher-described-") as folder:
        path = Path(folder) / "openapi.json"
        path.write_bytes(description)
        command = [Path(sys.executable).parent / "schemathesis", "run", path, "--url", base,
                   "--header", f"Authorization: Bearer {token}", "--checks", "no_fault_of_the_node",
                   "--phases", phases, "--max-examples", examples, "--seed", SEED,
                   # The stream has no end to wait for; the dashboard's test reads it.
                   "--exclude-operation-id", "watch_state",
                   "--generation-database", "none", "--mode", "all", "--continue-on-failure",
                   "--no-color"]
        environment = {**os.environ, "SCHEMATHESIS_HOOKS": here.stem,
                       "PYTHONPATH": str(here.parent), "PYTHONDONTWRITEBYTECODE": "1"}
        sys.exit(subprocess.run(command, cwd=folder, env=environment).returncode)


if __name__ == "__main__":
    main(*sys.argv[1:])
else:
    hooks()
