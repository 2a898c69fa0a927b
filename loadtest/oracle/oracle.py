#!/usr/bin/env python3
"""Checks Dropgate's promises over one sale, sharing no code with Dropgate.

Exit code 0: all hold. 1: a promise is broken. 2: an input cannot be read.
"""

import argparse
import gc
import json
import sys

from checks import check_all
from messages import SALE_ID
from redis_source import read_redis, read_redis_dump
from sources import CannotRead, read_log, read_told
from sql_source import read_sql


def arguments(argv):
    parser = argparse.ArgumentParser(prog="oracle.py", description=__doc__.splitlines()[0],
                                     epilog="Exit code 0: all hold. 1: a promise is broken. "
                                            "2: an input cannot be read.")
    parser.add_argument("--sale", required=True, help="the sale's id")
    parser.add_argument("--log", required=True, metavar="FILE",
                        help="the dump of the log, by `dropgate log dump`")
    parser.add_argument("--told", metavar="FILE",
                        help="what clients were told, by the load generator")
    redis = parser.add_mutually_exclusive_group()
    redis.add_argument("--redis", metavar="URL",
                       help="redis://user@host:port; the password in the URL or better in "
                            "ORACLE_REDIS_PASSWORD")
    redis.add_argument("--redis-dump", metavar="FILE", help="what Redis holds, from a file")
    parser.add_argument("--sql", metavar="URL",
                        help="sqlite:PATH or postgres://user@host:port/database (by psql); the "
                             "password in the URL or better in PGPASSWORD")
    parser.add_argument("--without", action="append", default=[],
                        choices=("told", "redis", "sql"),
                        help="do not ask this witness, and do not check what only it could say")
    parser.add_argument("--complete", action="store_true",
                        help="the transcript holds every client of the sale, and all were done: "
                             "a last answer that is not final is a violation, and so is a winner "
                             "who never asked")
    parser.add_argument("--json", metavar="FILE", help="write the report there as well")
    args = parser.parse_args(argv)
    if not SALE_ID.fullmatch(args.sale):
        parser.error("--sale: not a sale id")
    given = {"told": args.told, "redis": args.redis or args.redis_dump, "sql": args.sql}
    for name, value in given.items():
        if bool(value) == (name in args.without):
            parser.error(f"give either --{name} or --without {name}")
    return args


def as_json(sale, report):
    return {"sale": sale, "holds": report.holds(), "checks": [
        {"name": check.name, "checked": check.made,
         "holds": check.holds if check.made else None, "numbers": check.numbers,
         "violations": [{"kind": kind, "count": count, "examples": check.examples[kind]}
                        for kind, count in check.violations.items()]}
        for check in report.checks()]}


def table(found):
    """The report for people."""
    out = []
    for check in found["checks"]:
        word = {True: "holds", False: "BROKEN", None: "not checked"}[check["holds"]]
        numbers = ", ".join(f"{name} {value}" for name, value in check["numbers"].items() if
                            check["checked"])
        out.append(f"{check['name']:<32}{word:<13}{numbers}")
        for violation in check["violations"]:
            out.append(f"    {violation['kind']}: {violation['count']}")
            out += ["        " + example for example in violation["examples"]]
    out.append(f"sale {found['sale']}: " + ("all that was checked holds" if found["holds"] else
                                            "NOT ALL PROMISES HOLD"))
    return "\n".join(out)


def main(argv=None):
    args = arguments(argv)
    try:
        told = read_told(args.told, args.sale) if args.told else None
        redis = sql = None
        if args.redis or args.redis_dump:
            redis = (read_redis(args.redis, args.sale) if args.redis else
                     read_redis_dump(args.redis_dump))
        if args.sql:
            sql = read_sql(args.sql, args.sale)
        report = check_all(read_log(args.log, args.sale), told, redis, sql, args.complete)
        found = as_json(args.sale, report)
        if args.json:
            with open(args.json, "w", encoding="utf-8") as file:
                json.dump(found, file, indent=2)
                file.write("\n")
    except (CannotRead, OSError) as error:
        print(f"oracle: {error}", file=sys.stderr)
        return 2
    print(table(found))
    return 0 if report.holds() else 1


if __name__ == "__main__":
    gc.disable()   # no cycles are made here, and it would walk a million wins again and again
    sys.exit(main())
