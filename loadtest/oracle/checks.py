"""The promises, each checked over what four witnesses say: log, clients, Redis, database."""

from collections import Counter

from fold import BROKEN_PROMISES
from redis_source import entries, log_name

EXAMPLES_MAX = 5
WON = ("won", "again")
DENIED = ("sold_out", "closed")   # final by the rule: no event of this version frees a unit


class Check:
    """One promise: its numbers, and what breaks it by kind."""

    def __init__(self, name):
        self.name, self.numbers, self.made = name, {}, True
        self.violations, self.examples = Counter(), {}

    def found(self, kind, detail):
        self.violations[kind] += 1
        examples = self.examples.setdefault(kind, [])
        if len(examples) < EXAMPLES_MAX:
            examples.append(detail)

    @property
    def holds(self):
        return self.made and not self.violations


class Report:
    """All checks, in the order in which they are printed."""

    def __init__(self):
        self.log = Check("the log is whole")
        self.oversell = Check("1 never oversell")
        self.limit = Check("2 per-user limit")
        self.told = Check("3 a told win is never lost")
        self.undersell = Check("4 never undersell")
        self.database = Check("5 books balance: database")
        self.redis = Check("5 books balance: Redis")
        self.answers = Check("6 every last answer is final")

    def checks(self):
        return list(vars(self).values())

    def holds(self):
        return all(check.holds for check in self.checks() if check.made)

    def kinds(self):
        return {kind for check in self.checks() for kind in check.violations}


def check_all(log, told, redis, sql, complete=False):
    """Checks all. A witness that is None was not asked; what only it could say is not checked.

    `complete`: the transcript holds every client of the sale, and all clients were done.
    """
    report = Report()
    check_log(report, log)
    in_sql = in_redis = None
    if sql is None:
        report.database.made = False
    else:
        in_sql = check_database(report, log, sql)
    if redis is None:
        report.redis.made = False
    else:
        in_redis = check_redis(report, log, redis)
    if told is None:
        report.told.made = report.undersell.made = report.answers.made = False
    else:
        check_told(report, log, told, in_sql, in_redis, complete)
    return report


def stock_and_limit(log):
    definition = log.fold.definition or (log.pin and log.pin.definition)
    return (definition.stock, definition.per_user_limit) if definition else (0, 0)


class Owners:
    """Promises 1 and 2 over the claims that one witness knows, without asking the log."""

    def __init__(self, report, witness, log):
        self.report, self.witness = report, witness
        self.stock, self.limit = stock_and_limit(log)
        self.owner, self.claims = {}, {}

    def add(self, unit, user, claim):
        """`claim` tells apart the claims of one user; the same one may be added again."""
        if not 1 <= unit <= self.stock:
            self.report.oversell.found("oversold", f"{self.witness}: unit {unit} of "
                                       f"{self.stock} is {user}'s")
        owner = self.owner.setdefault(unit, (user, claim))
        if owner != (user, claim):
            self.report.oversell.found("unit_sold_twice", f"{self.witness}: unit {unit} is "
                                       f"{owner[0]}'s ({owner[1]}) and {user}'s ({claim})")
        mine = self.claims.get(user, ())
        if claim not in mine:
            self.claims[user] = mine + (claim,)
            if len(mine) + 1 > self.limit:
                self.report.limit.found("user_over_limit", f"{self.witness}: {user} has "
                                        f"{len(mine) + 1} of at most {self.limit}")

    def numbers(self):
        self.report.oversell.numbers["units " + self.witness] = len(self.owner)
        self.report.limit.numbers["users " + self.witness] = len(self.claims)


def check_log(report, log):
    """The log can be read to its end, and its end is a sale that goes on or is closed."""
    check, fold = report.log, log.fold
    stock, limit = stock_and_limit(log)
    check.numbers.update(records=log.records, generations=fold.generation, unpinned=log.unpinned,
                         **fold.counts)
    report.oversell.numbers["stock"] = stock
    report.limit.numbers["limit"] = limit
    if log.stop:
        check.found(log.stop.kind, log.stop.detail)
    elif log.pin is None:
        check.found("sale_not_in_index", "no record of the index names it")
    if fold.definition and fold.definition != log.pin.definition:
        check.found("definition_differs", f"index {log.pin.definition}, log {fold.definition}")
    for kind, detail in fold.notes:
        check.found(kind, detail)
    for generation, cause, detail in fold.endings:
        if cause in BROKEN_PROMISES:
            promise = report.limit if cause == "user_over_limit" else report.oversell
            promise.found(BROKEN_PROMISES[cause], "log: " + detail)
        if generation == fold.generation and fold.ended:
            check.found(cause, detail + ", and no other has started")
    if fold.waiting:
        check.found("event_missing", f"seq {fold.seq + 1} never came, {len(fold.waiting)} wait")
    owners = Owners(report, "log", log)
    for win in fold.by_unit.values():
        owners.add(win.unit, win.user, win.claim)
    owners.numbers()


def check_database(report, log, sql):
    """The database is the fold, row by row. Returns which seqs have a row."""
    check, fold = report.database, log.fold
    seen, orders = bytearray(fold.seq + 1), 0
    owners = Owners(report, "database", log)
    for row in sql.orders:
        orders += 1
        owners.add(row["unit"], row["user_id"], row["claim_id"])
        win = fold.win_of_claim(row["claim_id"]) or fold.by_unit.get(row["unit"])
        if win is None:
            check.found("extra_row", f"unit {row['unit']}, {row['user_id']}, {row['claim_id']}")
            continue
        if seen[win.seq]:
            check.found("row_twice", f"unit {row['unit']}, claim {win.claim}")
        seen[win.seq] = 1
        expected = {"unit": win.unit, "user_id": win.user, "claim_id": win.claim,
                    "attempt": win.attempt, "idem_key": win.key, "generation": win.generation,
                    "seq": win.seq, "status": "won", "won_ms": win.won_ms}
        compare(check, expected, row, f"unit {win.unit}")
    for win in fold.by_unit.values():
        if not seen[win.seq]:
            check.found("missing_row", f"unit {win.unit}, {win.user}, {win.claim}")
    owners.numbers()
    check.numbers.update(orders=orders, wins=fold.wins)
    check_sale_row(check, log, sql.row, orders)
    return seen


def compare(check, expected, row, where):
    """One violation `changed_<column>` for each column that differs."""
    for name, value in expected.items():
        if row[name] != value:
            kind = "changed_" + {"user_id": "user", "claim_id": "claim", "idem_key": "key"}.get(
                name, name)
            check.found(kind, f"{where}: {row[name]!r}, by the log {value!r}")


def check_sale_row(check, log, row, orders):
    fold, pin = log.fold, log.pin
    if row is None:
        if fold.generation or orders:
            check.found("sale_row_missing", "the sale is open by the log")
        return
    if not fold.generation:
        check.found("sale_row_extra", "the sale has not opened by the log")
        return
    stock = fold.definition.stock
    expected = {"part": pin.partition, "from_offset": pin.from_offset, "stock": stock,
                "sold": fold.wins, "held": 0, "closed_ms": fold.closed_ms,
                "state": "open" if fold.closed_ms is None else "closed"}
    compare(check, expected, row, "sale")
    if row["log_id"] != pin.log_id.hex():
        check.found("wrong_log_id", f"sale: {row['log_id']}, by the index {pin.log_id.hex()}")
    position = (row["generation"], row["seq"], row["chain"])
    if position != (fold.generation, fold.seq, fold.chain.hex()):
        check.found("position_differs", f"{position}, by the log "
                    f"{(fold.generation, fold.seq, fold.chain.hex())}")
    if row["sold"] != orders:
        check.found("sold_is_not_orders", f"sold {row['sold']}, orders {orders}")
    check.numbers.update(stock=stock, sold=row["sold"], held=row["held"], free=stock - fold.wins)


def check_redis(report, log, redis):
    """Redis' current generation is the fold, entry by entry. Returns which seqs have an entry."""
    check, fold = report.redis, log.fold
    seen, count = bytearray(fold.seq + 1), 0
    owners = Owners(report, "Redis", log)
    check_redis_state(check, log, redis)
    for user, value in redis.claims:
        try:
            found = entries(value)
        except ValueError as error:
            check.found("redis_claim_malformed", f"{user}: {error}")
            continue
        for entry in found:
            count += 1
            owners.add(entry.unit, user, str(entry.seq))
            win = fold.by_seq[entry.seq - 1] if 1 <= entry.seq <= fold.seq else None
            if win is None:
                check.found("redis_claim_extra", f"{user}: seq {entry.seq}, unit {entry.unit}")
                continue
            if seen[win.seq]:
                check.found("redis_claim_twice", f"{user}: seq {entry.seq}")
            seen[win.seq] = 1
            for name, is_, should in (("user", user, win.user), ("unit", entry.unit, win.unit),
                                      ("attempt", entry.attempt, win.attempt),
                                      ("key", entry.key, win.key)):
                if is_ != should:
                    check.found("redis_changed_" + name, f"seq {win.seq}: {is_!r}, by the log "
                                f"{should!r}")
    for win in fold.by_unit.values():
        if not seen[win.seq]:
            check.found("redis_claim_missing", f"{win.user}: seq {win.seq}, unit {win.unit}")
    owners.numbers()
    check.numbers.update(claims=count, wins=fold.wins)
    return seen


def check_redis_state(check, log, redis):
    fold = log.fold
    if redis.current is None:
        if fold.generation:
            check.found("redis_sale_missing", "no key names the current generation")
        return
    log_part, _, generation = redis.current.partition(":")
    if not log.pin or log_part != log_name(log.pin.log_id):
        check.found("wrong_log_id", f"Redis holds a sale of the log {log_part}")
    if generation != str(fold.generation):
        check.found("redis_generation_differs", f"{generation}, by the log {fold.generation}")
    if not fold.generation:
        return
    state = redis.state
    # A generation takes the next fresh unit, and nothing frees one yet: a gap would be a unit
    # that Redis gave away and that nobody owns.
    sold = fold.definition
    expected = {"stock": sold.stock, "limit": sold.per_user_limit, "opens": sold.opens_ms,
                "closes": sold.closes_ms, "window": fold.window, "seq": fold.seq,
                "next": fold.wins + 1, "st": "open" if fold.closed_ms is None else "closed"}
    for name, value in expected.items():
        if state.get(name) != str(value).encode():
            check.found(f"redis_{name}_differs", f"{state.get(name)!r}, by the log {value}")
    if state.get("head") != fold.chain:
        check.found("redis_head_differs", f"{state.get('head')!r}, by the log {fold.chain.hex()}")
    time_ms = state.get("time", b"")
    if not time_ms.isdigit() or int(time_ms) < fold.time_ms:
        check.found("redis_time_behind", f"{time_ms!r}, by the log {fold.time_ms}")


class Client:
    """What one client was told: with a limit of 1 a user, else a user and a key."""

    __slots__ = ("last", "claim", "denied", "limited")

    def __init__(self):
        self.last = None       # the answer that came last
        self.claim = None      # the claim it was told
        self.denied = None     # a status that says that there will be no unit
        self.limited = False


def check_told(report, log, told, in_sql, in_redis, complete):
    """What was told is true, and what was won was not denied."""
    limit = stock_and_limit(log)[1]
    owners = Owners(report, "told", log)
    clients, known, told_seqs, statuses = {}, set(), set(), Counter()
    for answer in told:
        statuses[answer.status] += 1
        known.add(answer.user)
        name = (answer.user, answer.key) if limit > 1 else answer.user
        client = clients.get(name)
        if client is None:
            client = clients[name] = Client()
        if client.last is None or client.last.order < answer.order:
            client.last = answer._replace(claim=None, unit=None)   # of a million, less is more
        if answer.status in WON:
            win = check_told_win(report.told, log, answer, client)
            if isinstance(answer.unit, int):
                owners.add(answer.unit, answer.user, answer.claim)
            if win:
                told_seqs.add(win.seq)
        elif answer.status in DENIED:
            client.denied = answer.status
        elif answer.status == "limit_reached":
            client.limited = True
        elif answer.status == "void" and log.fold.win_of_claim(answer.claim):
            report.told.found("told_void_but_applied", f"{answer.user}: {answer.claim}")
    owners.numbers()
    for name, seen in (("told_winner_without_row", in_sql),
                       ("told_winner_without_redis_claim", in_redis)):
        for seq in sorted(told_seqs) if seen is not None else ():
            if not seen[seq]:
                win = log.fold.by_seq[seq - 1]
                report.told.found(name, f"{win.user}: unit {win.unit}, {win.claim}")
    report.told.numbers.update(answers=sum(statuses.values()), winners=len(told_seqs),
                               never_told=log.fold.wins - len(told_seqs), **dict(statuses))
    check_clients(report, log, clients, complete)
    check_undersell(report, log, clients, known)
    for user in set(log.fold.by_user) - known if complete else ():
        report.told.found("winner_who_never_asked", user)


def check_told_win(check, log, answer, client):
    """One answer that names a win. Returns the win if the log has it."""
    who = f"{answer.user}: unit {answer.unit}, {answer.claim}"
    if not isinstance(answer.claim, str) or not isinstance(answer.unit, int):
        check.found("told_win_without_claim", who)
        return None
    if client.claim not in (None, answer.claim):
        check.found("told_two_claims", f"{who} after {client.claim}")
    client.claim = answer.claim
    win = log.fold.win_of_claim(answer.claim)
    if win is None:
        void = answer.claim in log.fold.void
        check.found("told_winner_void" if void else "told_winner_absent_from_log", who)
        return None
    if win.user != answer.user:
        check.found("told_claim_of_another", f"{who}, by the log {win.user}'s")
    elif win.unit != answer.unit:
        check.found("told_another_unit", f"{who}, by the log unit {win.unit}")
    elif win != owed(log, answer.user, answer.key):
        check.found("told_claim_of_another_key", who)
    return win


def owed(log, user, key):
    """The win that a claim of this user with this key must be answered with, or None."""
    wins = log.fold.by_user.get(user, ())
    if stock_and_limit(log)[1] > 1 and key:
        wins = [win for win in wins if win.key == key]
    return wins[0] if wins else None


def check_clients(report, log, clients, complete):
    """What each client was told, taken together."""
    limit = stock_and_limit(log)[1]
    pending = errors = 0
    for client in clients.values():
        last = client.last
        user, win = last.user, owed(log, last.user, last.key)
        if win and client.denied:
            report.told.found(f"told_{client.denied}_owns_win", f"{user}: {win.claim}")
        elif win and last.status == "void":
            report.told.found("told_void_owns_win", f"{user}: {win.claim}")
        if client.limited and len(log.fold.by_user.get(user, ())) < limit:
            report.told.found("told_limit_without_wins", user)
        if not final(last):
            pending += last.status == "pending"
            errors += last.status != "pending"
            if complete:
                report.answers.found("last_answer_not_final", f"{user}: {last.status}")
    report.answers.numbers.update(clients=len(clients), pending=pending, errors=errors)


def final(answer):
    known = answer.status in WON + DENIED + ("limit_reached",)
    return known or (400 <= answer.http < 500 and answer.status not in ("pending", "void"))


def check_undersell(report, log, clients, known):
    """Who was told that nothing is left was told so of a sale that is sold to the last unit."""
    check, stock = report.undersell, stock_and_limit(log)[0]
    free = stock - log.fold.wins
    sold_out = [client.last.user for client in clients.values() if client.denied == "sold_out"]
    check.numbers.update(stock=stock, sold=log.fold.wins, free=free, asked=len(known),
                         told_sold_out=len(sold_out))
    for user in sold_out if free else ():
        check.found("undersold", f"{user} was told sold_out, {free} of {stock} units are free")
