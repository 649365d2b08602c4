"""Django's cache and sessions in the server, through django-redis."""

import datetime

import django
import django_redis
from django.conf import settings

from common import BINARY, HOST, LARGE, PORT, SOCKET, expect, expect_true, phase

LOCATIONS = {"default": f"redis://{HOST}:{PORT}/1", "unix": f"unix://{SOCKET}?db=2"}


def configure():
    """Configures Django with one cache for each location."""
    backend = {"BACKEND": "django_redis.cache.RedisCache", "TIMEOUT": 3600, "KEY_PREFIX": "django"}
    settings.configure(
        CACHES={name: {**backend, "LOCATION": location} for name, location in LOCATIONS.items()},
        SESSION_ENGINE="django.contrib.sessions.backends.cache",
        INSTALLED_APPS=["django.contrib.sessions"],
    )
    django.setup()


def write(cache):
    """Runs the calls of a cache, and leaves the keys that `check` reads back."""
    cache.clear()
    expect("set", cache.set("object", {"day": datetime.date(2026, 1, 2), "list": [1, None]}), True)
    expect("set without expiry", cache.set("forever", "text", timeout=None), True)
    expect("ttl", [cache.ttl("forever"), cache.ttl("none")], [None, 0])
    expect("add", [cache.add("added", 1), cache.add("added", 2)], [True, False])
    expect("set of bytes", cache.set("bytes", BINARY), True)
    expect("set of 1 MiB", cache.set("large", LARGE), True)
    cache.set_many({f"many:{i:04}": i for i in range(1000)})
    expect("get_or_set", cache.get_or_set("computed", lambda: "value"), "value")
    expect("set of a counter", cache.set("counter", 1), True)
    expect("incr", [cache.incr("counter"), cache.incr("counter", 5), cache.decr("counter")], [2, 7, 6])
    expect("touch", cache.touch("counter", 100), True)
    expect("expire", cache.expire("added", 50), True)
    expect("persist", cache.persist("computed"), True)
    expect("delete", [cache.set("deleted", 1), cache.delete("deleted"), cache.get("deleted")], [True, True, None])
    cache.set_many({f"wild:{i}": i for i in range(20)})
    expect("delete_pattern", cache.delete_pattern("wild:*"), 20)
    expect("hset", [cache.hset("hash", "name", "Ada"), cache.hexists("hash", "name")], [1, True])


def check(cache):
    """Reads back what `write` left."""
    expect("get", cache.get("object"), {"day": datetime.date(2026, 1, 2), "list": [1, None]})
    expect("ttl", [cache.ttl("forever"), cache.ttl("computed")], [None, None])
    expect_true("ttl of a default", 0 < cache.ttl("object") <= 3600)
    expect_true("ttl after touch", 0 < cache.ttl("counter") <= 100)
    expect_true("ttl after expire", 0 < cache.ttl("added") <= 50)
    expect("get of bytes", cache.get("bytes"), BINARY)
    expect("get of 1 MiB", cache.get("large"), LARGE)
    many = {f"many:{i:04}": i for i in range(1000)}
    expect("get_many", cache.get_many(list(many) + ["none"]), many)
    expect("iter_keys", set(cache.iter_keys("many:*")), set(many))
    expect("get of a counter", cache.get("counter"), 6)
    expect("hkeys", cache.hkeys("hash"), ["name"])
    expect("get with a default", cache.get("none", "default"), "default")


def main():
    now = phase()
    configure()
    from django.contrib.sessions.backends.cache import SessionStore
    from django.core.cache import caches

    for name in LOCATIONS:
        write(caches[name]) if now == "write" else check(caches[name])
    if now == "write":
        session = SessionStore()
        session["user"] = "Ada"
        session.create()
        caches["default"].set("session", session.session_key)
    expect("session", SessionStore(caches["default"].get("session"))["user"], "Ada")
    print(f"Django {django.__version__} with django-redis {django_redis.__version__}: {', '.join(LOCATIONS)}")


main()
