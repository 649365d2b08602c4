"""Flask-Caching in the server: cached views, memoized functions, and the cache itself."""

from importlib.metadata import version

from flask import Flask
from flask_caching import Cache

from common import BINARY, HOST, LARGE, PORT, SOCKET, expect, phase

URLS = {"tcp": f"redis://{HOST}:{PORT}/3", "unix": f"unix://{SOCKET}?db=4"}


def make_app(url):
    """Returns an application, its cache, and the list of calls of its functions."""
    app = Flask(__name__)
    app.config.update(CACHE_TYPE="RedisCache", CACHE_REDIS_URL=url, CACHE_KEY_PREFIX="flask:", CACHE_DEFAULT_TIMEOUT=3600)
    # Flask-Caching passes its own number of the database, which overrides the one of the URL.
    app.config["CACHE_REDIS_DB"] = int(url[-1])
    cache = Cache(app)
    calls = []

    @app.route("/page")
    @cache.cached()
    def page():
        calls.append("page")
        return "page"

    @cache.memoize()
    def square(number):
        calls.append(number)
        return number * number

    return app, cache, calls, square


def write(app, cache, calls, square):
    """Runs the calls of a cache, and leaves the keys that `check` reads back."""
    cache.clear()
    for _ in range(2):
        expect("cached view", app.test_client().get("/page").text, "page")
        expect("memoized function", [square(3), square(4)], [9, 16])
    expect("calls of functions", calls, ["page", 3, 4])
    cache.delete_memoized(square, 4)
    expect("set", cache.set("object", {"list": [1, None]}), True)
    expect("set of bytes", cache.set("bytes", BINARY), True)
    expect("set of 1 MiB", cache.set("large", LARGE), True)
    expect("add", [cache.add("added", 1), cache.add("added", 2)], [True, False])
    cache.set_many({f"many:{i}": i for i in range(1000)})
    expect("inc", cache.cache.inc("counter", 5), 5)
    expect("delete", [cache.set("deleted", 1), cache.delete("deleted"), cache.has("deleted")], [True, True, False])
    expect("delete_many", [cache.set("deleted", 1), cache.delete_many("deleted")], [True, ["deleted"]])


def check(app, cache, calls, square):
    """Reads back what `write` left."""
    expect("cached view", app.test_client().get("/page").text, "page")
    expect("memoized function", [square(3), square(4)], [9, 16])
    expect("calls of functions", calls, [4])
    expect("get", cache.get("object"), {"list": [1, None]})
    expect("get of bytes", cache.get("bytes"), BINARY)
    expect("get of 1 MiB", cache.get("large"), LARGE)
    expect("get_many", cache.get_many(*(f"many:{i}" for i in range(1000))), list(range(1000)))
    expect("get of a counter", cache.get("counter"), 5)
    expect("get of an added key", cache.get("added"), 1)


def main():
    now = phase()
    for url in URLS.values():
        app, cache, calls, square = make_app(url)
        with app.app_context():
            (write if now == "write" else check)(app, cache, calls, square)
    print(f"Flask {version('Flask')} with Flask-Caching {version('Flask-Caching')}: {', '.join(URLS)}")


main()
