"""Scrapes servers under load with Prometheus, and evaluates the queries of the Grafana dashboard.

python3 scripts/metrics.py PROGRAM PROMETHEUS PROMTOOL
"""

import json
import math
import os
import re
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request

from observed_server import Load, Server, wait_for

DASHBOARD = "packaging/grafana/lodestore.json"
# The dashboard has panels for each of them.
ENGINES = ["hikv", "nvht", "fluidkv", "hashkv", "mkvs"]
# Grafana's variables, as Grafana would replace them.
VARIABLES = {"$__rate_interval": "10s", "$instance": ".*"}
# Least status of an error of Prometheus itself, which is not ready at its start.
HTTP_SERVER_ERROR = 500
# Time of a command whose histogram is known.
SLEEP_SECONDS = 0.02
SLEEPS = 20
# Bounds of the bucket with the sleeps; a busy machine sleeps longer.
SLEEP_P50_MIN, SLEEP_P50_MAX = 0.016, 0.14


class Prometheus:
    """Prometheus with a configuration and data of its own."""

    def __init__(self, program, targets):
        self.directory = tempfile.TemporaryDirectory(prefix="lodestore-prometheus-")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{probe.getsockname()[1]}"
        path = os.path.join(self.directory.name, "prometheus.yml")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(
                {
                    "global": {"scrape_interval": "1s"},
                    "scrape_configs": [{"job_name": "lodestore", "static_configs": [{"targets": targets}]}],
                },
                file,
            )
        words = [program, f"--config.file={path}", f"--web.listen-address={self.url.removeprefix('http://')}"]
        words.append(f"--storage.tsdb.path={self.directory.name}/data")
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def ask(self, path, **parameters):
        """Returns the data of an answer of the HTTP API. A refused request ends the script."""
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code >= HTTP_SERVER_ERROR:
                raise
            raise SystemExit(f"{parameters}: {error.read().decode()}") from error

    def scraped(self):
        """Whether all targets were scraped. A target that cannot be read is an error."""
        try:
            targets = self.ask("targets")["activeTargets"]
        except OSError:
            return False
        for target in targets:
            if target["lastError"]:
                raise SystemExit(f"{target['scrapeUrl']}: {target['lastError']}")
        return bool(targets) and all(target["health"] == "up" for target in targets)

    def values(self, query):
        """Returns the finite values of a query."""
        result = self.ask("query", query=query)["result"]
        return [value for value in (float(sample["value"][1]) for sample in result) if math.isfinite(value)]

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.directory.cleanup()


def queries_of(dashboard):
    """Returns the title and the query of each target, annotation and variable of a dashboard."""
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for variable in dashboard["templating"]["list"]:
        found = re.fullmatch(r"label_values\((.*), *\w+\)", variable.get("definition", ""))
        if found:
            yield variable["name"], found.group(1)


def check_text(promtool, server):
    """Checks the text format with promtool."""
    with urllib.request.urlopen(f"{server.page}metrics", timeout=10) as answer:
        text = answer.read()
    result = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, check=False)
    if result.returncode != 0 or result.stderr:
        raise SystemExit(f"promtool check metrics: {result.stdout.decode()}{result.stderr.decode()}")


def check_dashboard(prometheus):
    """Checks that each metric of the dashboard exists, and that each query has a result."""
    with open(DASHBOARD, encoding="utf-8") as file:
        dashboard = json.load(file)
    known = set(prometheus.ask("label/__name__/values"))
    count = 0
    for title, query in queries_of(dashboard):
        for name in re.findall(r"\blodestore_[a-z0-9_]+\b(?!\|)", re.sub(r'"[^"]*"', '""', query)):
            if name not in known:
                raise SystemExit(f"{title}: there is no metric {name}")
        for variable, text in VARIABLES.items():
            query = query.replace(variable, text)
        wait_for(lambda query=query: prometheus.values(query), f"a result of {title}: {query}", seconds=10)
        count += 1
    # An annotation has a result only after a restart.
    for annotation in dashboard["annotations"]["list"]:
        prometheus.values(annotation["expr"].replace("$instance", ".*"))
    return count


def check_latency(prometheus):
    """Checks a quantile of commands whose time is known."""
    query = 'histogram_quantile(0.5, sum by (le) (lodestore_server_command_duration_seconds_bucket{command="debug"}))'
    median = wait_for(lambda: prometheus.values(query), "the time of DEBUG")[0]
    if not SLEEP_P50_MIN <= median <= SLEEP_P50_MAX:
        raise SystemExit(f"the median of sleeps of {SLEEP_SECONDS} s is {median} s")


def main():
    program, prometheus_program, promtool = sys.argv[1:]
    servers, loads, prometheus = [], [], None
    try:
        for engine in ENGINES:
            servers.append(Server(program, "--engine", engine))
        loads = [Load(server, pause=0.05) for server in servers]
        client = servers[0].client()
        for _ in range(SLEEPS):
            client.run("DEBUG", "SLEEP", SLEEP_SECONDS)
        prometheus = Prometheus(prometheus_program, [server.page[len("http://") :].rstrip("/") for server in servers])
        wait_for(prometheus.scraped, "a scrape of all servers")
        for server in servers:
            check_text(promtool, server)
        count = check_dashboard(prometheus)
        check_latency(prometheus)
    finally:
        if prometheus:
            prometheus.close()
        for load in loads:
            load.stop()
        for server in servers:
            server.remove()
    print(f"Prometheus scrapes {len(ENGINES)} engines, and {count} queries of the dashboard have results")


main()
