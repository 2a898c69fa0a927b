"""The witnesses are read as they are, from real servers too; what cannot be read is exit code 2."""

import contextlib
import glob
import io
import os
import shutil
import socket
import subprocess
import tempfile
import time
import unittest

import redis_source
import sources
from tests import world as w

LIVENESS_SECONDS = 60


def free_port():
    """Below the ephemeral ports, which a client's socket may hold."""
    for port in range(20_100, 21_900):
        with contextlib.closing(socket.socket()) as probe:
            try:
                probe.bind(("127.0.0.1", port + os.getpid() % 97))
                return port + os.getpid() % 97
            except OSError:
                continue
    raise AssertionError("no free port")


def program(name):
    """A server's program; one that is missing is a failure."""
    found = shutil.which(name) or next(iter(glob.glob(f"/usr/lib/postgresql/*/bin/{name}")), None)
    if not found:
        raise AssertionError(f"{name} is not installed")
    return found


def wait_until(ready, server):
    end = time.monotonic() + LIVENESS_SECONDS
    while not ready():
        if server.poll() is not None or time.monotonic() > end:
            raise AssertionError(f"the server is not there: {server.args}, {server.poll()}")
        time.sleep(0.05)


class Server(unittest.TestCase):
    """Starts one server in a folder of its own for the tests of a class."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.port = free_port()
        cls.server = None
        cls.addClassCleanup(cls.stop)
        cls.start()

    @classmethod
    def stop(cls):
        if cls.server:
            cls.server.terminate()
            cls.server.wait(LIVENESS_SECONDS)

    def judge(self, world, option, value, *without):
        """The oracle with one witness from a real server. Returns (exit code, output)."""
        with tempfile.TemporaryDirectory() as folder:
            args = world.write(folder)
            place = args.index({"--redis": "--redis-dump"}.get(option, option))
            args[place:place + 2] = [option, value]
            code, _, out = w.run(args + list(without))
            return code, out


class RealRedis(Server):
    PASSWORD = "s3:cr/et"
    URL_PASSWORD = "s3%3Acr%2Fet"

    @classmethod
    def start(cls):
        cls.server = subprocess.Popen(
            [program("redis-server"), "--port", str(cls.port), "--bind", "127.0.0.1", "--save", "",
             "--dir", cls.folder, "--user", "oracle", "on", ">" + cls.PASSWORD, "~dropgate:*",
             "+get", "+hgetall", "+hscan", "+select"], stdout=subprocess.DEVNULL)

        def ready():
            with contextlib.suppress(sources.CannotRead):
                return redis_source.Redis(f"redis://127.0.0.1:{cls.port}").call("PING") == b"PONG"
        wait_until(ready, cls.server)

    def fill(self, world, db=0):
        redis = redis_source.Redis(f"redis://127.0.0.1:{self.port}/{db}")
        redis.call("FLUSHDB")
        redis.call("SET", f"dropgate:{{{w.SALE}}}:current", world.redis["current"])
        prefix = f"dropgate:{{{w.SALE}}}:{world.redis['current']}"
        for name, value in world.redis["state"].items():
            redis.call("HSET", prefix + ":state", name, value)
        for user, value in world.redis_bytes().items():
            redis.call("HSET", prefix + ":claims", user, value)
        return redis

    def url(self, db=0):
        return f"redis://oracle:{self.URL_PASSWORD}@127.0.0.1:{self.port}/{db}"

    def test_a_sale_is_read_by_a_user_that_can_only_read(self):
        for shape in ({}, {"stock": 2500, "users": 2600}, {"stock": 0, "users": 2}):
            world = w.World(**shape)
            self.fill(world)
            code, out = self.judge(world, "--redis", self.url())
            self.assertEqual(code, 0, out)
            self.assertIn(f"claims {len(world.wins)}", out)

    def test_another_database_is_another_witness(self):
        world = w.World()
        self.fill(world, 3)
        self.assertEqual(self.judge(world, "--redis", self.url(3))[0], 0)
        code, out = self.judge(world, "--redis", self.url(4))
        self.assertEqual(code, 1)
        self.assertIn("redis_sale_missing", out)

    def test_a_claim_that_is_missing_there_is_found(self):
        world = w.World(stock=2500, users=2600)
        self.fill(world).call("HDEL", f"dropgate:{{{w.SALE}}}:{w.L}:1:claims", "user-1234")
        code, out = self.judge(world, "--redis", self.url())
        self.assertEqual(code, 1)
        self.assertRegex(out, "redis_claim_missing: 1\n.*user-1234")

    def test_a_password_may_come_by_the_environment(self):
        world = w.World()
        self.fill(world)
        os.environ["ORACLE_REDIS_PASSWORD"] = self.PASSWORD
        self.addCleanup(os.environ.pop, "ORACLE_REDIS_PASSWORD")
        self.assertEqual(self.judge(world, "--redis", f"redis://oracle@127.0.0.1:{self.port}")[0],
                         0)

    def test_what_cannot_be_read_is_named_without_the_password(self):
        world = w.World()
        redis = self.fill(world)
        redis.call("SET", "dropgate:{typed}:current", "x:1")
        redis.call("SET", "dropgate:{typed}:x:1:state", "no hash")
        for url in (self.url().replace("s3%3A", "wrong"),
                    f"redis://:{self.URL_PASSWORD}@nowhere.invalid",
                    f"redis://u:{self.URL_PASSWORD}@127.0.0.1:1", self.url(99),
                    "http://127.0.0.1", f"redis://127.0.0.1:{self.port}/x"):
            code, out = self.judge(world, "--redis", url)
            self.assertEqual(code, 2, out)
            for secret in (self.PASSWORD, self.URL_PASSWORD, "wrongcr"):
                self.assertNotIn(secret, out)
        with self.assertRaisesRegex(sources.CannotRead, "HGETALL: WRONGTYPE"):
            redis_source.read_redis(self.url(), "typed")


class RealPostgres(Server):
    PASSWORD = "p@ss word"
    URL_PASSWORD = "p%40ss%20word"

    @classmethod
    def start(cls):
        # Postgres does not run as root.
        cls.as_user = {"user": "nobody"} if os.getuid() == 0 else {}
        if cls.as_user:
            shutil.chown(cls.folder, "nobody")
        os.chmod(cls.folder, 0o700)
        with open(os.path.join(cls.folder, "pw"), "w", encoding="utf-8") as file:
            file.write(cls.PASSWORD)
        data = os.path.join(cls.folder, "data")
        subprocess.run([program("initdb"), "-D", data, "-U", "writer", "-A", "scram-sha-256", "-N",
                        "-E", "UTF8", "--locale=C", "--pwfile", os.path.join(cls.folder, "pw")],
                       check=True, stdout=subprocess.DEVNULL, cwd=cls.folder, **cls.as_user)
        cls.server = subprocess.Popen(
            [program("postgres"), "-D", data, "-p", str(cls.port), "-h", "127.0.0.1", "-k",
             cls.folder, "-c", "fsync=off"], stderr=subprocess.DEVNULL, cwd=cls.folder,
            **cls.as_user)
        wait_until(lambda: cls.psql("SELECT 1", check=False).returncode == 0, cls.server)
        cls.psql("""CREATE TABLE sales (sale_id text COLLATE "C" PRIMARY KEY, log_id bytea,
            part bigint, from_offset bigint, generation bigint, seq bigint, chain bytea,
            state text, stock bigint, sold bigint, held bigint, opened_ms bigint,
            closed_ms bigint);
            CREATE TABLE orders (sale_id text, unit bigint, claim_id text UNIQUE, user_id text,
            attempt bytea, idem_key text, generation bigint, seq bigint, status text,
            won_ms bigint, PRIMARY KEY (sale_id, unit))""")

    @classmethod
    def psql(cls, script, check=True):
        return subprocess.run(
            [program("psql"), "-X", "-q", "-w", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p",
             str(cls.port), "-U", "writer", "postgres"], input=script, text=True, check=check,
            env={**os.environ, "PGPASSWORD": cls.PASSWORD}, capture_output=True)

    def fill(self, world):
        def literal(value):
            if isinstance(value, bytes):
                return f"'\\x{value.hex()}'"
            if isinstance(value, str):
                return "'" + value.replace("'", "''") + "'"
            return "NULL" if value is None else str(value)
        script = ["SET standard_conforming_strings = on", "TRUNCATE sales, orders"]
        for table, row in [("sales", world.sale_row)] + [("orders", row) for row in world.orders]:
            for sale in (w.SALE, "another") if table == "orders" else (w.SALE,):
                full = {**row, "sale_id": sale}
                if sale == "another":
                    full["claim_id"] = "x" + full["claim_id"]
                script.append(f"INSERT INTO {table} ({', '.join(full)}) VALUES "
                              f"({', '.join(map(literal, full.values()))})")
        self.psql(";\n".join(script))

    def url(self):
        return f"postgres://writer:{self.URL_PASSWORD}@127.0.0.1:{self.port}/postgres"

    def test_a_sale_is_read_with_every_character_of_a_user(self):
        world = w.World(stock=30, users=6, close=True)
        odd = dict(zip((f"user-{n}" for n in range(6)),
                       ("a\\b\\n", "o'neil \"x\", y", "사용자", "\\N", "t\u2028u", "\\x00")))
        plain = w.World.win
        try:
            w.World.win = lambda self, user: plain(self, odd[user])
            world = w.World(stock=30, users=6, close=True)
        finally:
            w.World.win = plain
        self.assertEqual({win["user_id"] for win in world.wins}, set(odd.values()))
        self.fill(world)
        code, out = self.judge(world, "--sql", self.url())
        self.assertEqual(code, 0, out)
        self.assertIn("orders 6", out)

    def test_many_rows_and_a_planted_one(self):
        world = w.World(stock=2500, users=2600)
        self.fill(world)
        self.assertEqual(self.judge(world, "--sql", self.url())[0], 0)
        self.psql("UPDATE orders SET user_id = 'ghost' WHERE unit = 1234")
        self.psql("DELETE FROM orders WHERE unit = 1500 AND sale_id = 'drop'")
        code, out = self.judge(world, "--sql", self.url())
        self.assertEqual(code, 1)
        self.assertRegex(out, "changed_user: 1\n.*unit 1234: 'ghost'")
        self.assertRegex(out, "missing_row: 1\n.*unit 1500")

    def test_a_sale_that_is_not_there(self):
        world = w.World()
        self.psql("TRUNCATE sales, orders")
        self.assertIn("sale_row_missing", self.judge(world, "--sql", self.url())[1])
        self.fill(world)
        self.psql("DELETE FROM sales")
        code, out = self.judge(world, "--sql", self.url())
        self.assertIn("sale_row_missing", out)
        self.assertNotIn("missing_row:", out)

    def test_the_password_is_not_in_the_arguments(self):
        with tempfile.TemporaryDirectory() as folder:
            fake = os.path.join(folder, "psql")
            with open(fake, "w", encoding="utf-8") as file:
                file.write(f"#!/bin/sh\necho \"$@\" > {folder}/args\n"
                           f"exec {program('psql')} \"$@\"\n")
            os.chmod(fake, 0o755)
            path = os.environ["PATH"]
            self.addCleanup(os.environ.__setitem__, "PATH", path)
            os.environ["PATH"] = folder + ":" + path
            world = w.World()
            self.fill(world)
            self.assertEqual(self.judge(world, "--sql", self.url())[0], 0)
            with open(os.path.join(folder, "args"), encoding="utf-8") as file:
                args = file.read()
            self.assertNotIn("p@ss", args)
            self.assertNotIn("p%40ss", args)

    def test_what_cannot_be_read_is_named_without_the_password(self):
        world = w.World()
        for url in (self.url().replace("p%40", "wrong"), self.url() + "x",
                    self.url().replace(str(self.port), "1"), self.url() + "?sslmode=require"):
            code, out = self.judge(world, "--sql", url)
            self.assertEqual(code, 2, out)
            self.assertNotIn("ss%20word", out)
            self.assertNotIn("ss word", out)


class Files(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.args = w.World().write(self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def cannot(self, *args, says=""):
        code, _, out = w.run(list(args) or self.args)
        self.assertEqual(code, 2, out)
        self.assertIn(says, out)

    def test_a_file_that_is_not_there(self):
        for name in ("dump.jsonl", "told.jsonl", "redis.json", "sales.db"):
            os.rename(self.path(name), self.path("away"))
            self.cannot(says=name)
            os.rename(self.path("away"), self.path(name))
        self.assertEqual(w.run(self.args)[0], 0)

    def test_a_file_that_was_cut(self):
        for name in ("dump.jsonl", "told.jsonl", "redis.json"):
            with open(self.path(name), "rb") as file:
                whole = file.read()
            with open(self.path(name), "wb") as file:
                file.write(whole[:-9])
            self.cannot(says=name)
            with open(self.path(name), "wb") as file:
                file.write(whole)

    def test_lines_of_another_form(self):
        for name, line in (("dump.jsonl", "[]"), ("dump.jsonl", "{}"), ("told.jsonl", "7"),
                           ("dump.jsonl", '{"topic": "dropgate-claims", "partition": 3, '
                                          '"offset": "1", "value": ""}'),
                           ("dump.jsonl", '{"topic": "dropgate-claims", "partition": 3, '
                                          '"offset": 1, "value": "?"}'),
                           ("dump.jsonl", '{"topic": "dropgate-claims", "partition": 3, '
                                          '"offset": 1, "value": null}'),
                           ("told.jsonl", '{"sale": "drop", "user": "u"}'),
                           ("told.jsonl", '{"sale": "drop", "user": 7, "status": "won"}'),
                           ("told.jsonl", '{"user": "u", "status": "won"}')):
            args = w.World().write(tempfile.mkdtemp(dir=self.folder))
            with open(args[args.index("--" + name.split(".")[0].replace("dump", "log")) + 1], "a",
                      encoding="utf-8") as file:
                file.write(line + "\n")
            self.cannot(*args, says=name)

    def test_a_database_without_the_tables(self):
        with open(self.path("sales.db"), "w", encoding="utf-8"):
            pass
        self.cannot(says="no such table")
        self.cannot(*self.args, "--sql", "mysql://u:secret@h/d", says="sqlite:PATH")

    def test_a_database_is_only_read(self):
        os.chmod(self.path("sales.db"), 0o444)
        before = os.stat(self.path("sales.db"))
        self.assertEqual(w.run(self.args)[0], 0)
        after = os.stat(self.path("sales.db"))
        self.assertEqual((before.st_mtime_ns, before.st_size), (after.st_mtime_ns, after.st_size))

    def test_a_report_that_cannot_be_written(self):
        self.cannot(*self.args, "--json", self.path("no/such/out.json"), says="no/such")

    def test_what_was_told_of_other_sales_does_not_count(self):
        with open(self.path("told.jsonl"), "a", encoding="utf-8") as file:
            file.write('{"sale": "other", "user": "u", "status": "won", "claim": "x", "unit": 1}\n')
        self.assertEqual(w.run(self.args)[0], 0)

    def test_a_witness_is_left_out_only_by_name(self):
        for name, option in (("told", "--told"), ("redis", "--redis-dump"), ("sql", "--sql")):
            place = self.args.index(option)
            less = self.args[:place] + self.args[place + 2:]
            with self.assertRaises(SystemExit) as caught, contextlib.redirect_stderr(io.StringIO()):
                w.oracle.main(less)
            self.assertEqual(caught.exception.code, 2)
            code, _, out = w.run(less + ["--without", name])
            self.assertEqual(code, 0, out)
            self.assertIn("not checked", out)

    def test_a_sale_id_is_checked_before_it_stands_in_a_query(self):
        for bad in ("a'; DROP TABLE sales; --", "A", "", "-a", "a" * 64):
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
                w.oracle.main(["--sale", bad] + self.args[2:])

    def test_the_program_runs_by_itself(self):
        script = os.path.join(os.path.dirname(sources.__file__), "oracle.py")
        done = subprocess.run([script] + self.args, capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertIn("sale drop: all that was checked holds", done.stdout)
