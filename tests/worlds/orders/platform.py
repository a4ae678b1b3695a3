"""The platform of a world: what it answers follows from the world, the question, and how often that was asked."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from email.utils import format_datetime
from urllib.parse import urlencode

from sims.platforms.clock import MICRO
from tests.worlds import dice
from tests.worlds.answers import BENDS, Answer, Bending
from tests.worlds.flaws import Flaw
from tests.worlds.orders import record
from tests.worlds.orders.account import Account, refuse_with, tell
from tests.worlds.orders.asking import Question, is_taken_for_right, read_place, strip_version
from tests.worlds.orders.flaws import KINDS, Group
from tests.worlds.orders.paging import Cut, Place, cut
from tests.worlds.orders.rows import Goods, moment
from tests.worlds.orders.world import World

LIES = frozenset(
    {
        *("cut_json", "nothing", "error_in_200", "no_id"),
        *("detail_gone", "detail_other", "detail_older", "lines_repeat"),
    }
)
"""Flaws that, where they pass, each cost an attempt at a slice."""
LIES_MAX = 2
CHANGES_MAX = 8
"""So often something moves while it is read."""
LATE_MAX = 3
DOWN_TIMES = 2
AHEAD_SECONDS = 30
BACK_SECONDS = 100
QUOTA = timedelta(days=1)
SLOW_SECONDS = 1.2
TOTAL_MAX = 6
"""A total that is capped says no more."""
LINES_OF_A_PAGE = 2
ON_PAGES = frozenset({"no_id", "cached"})


class WorldPlatform:
    """Answers for one world, and notes what went wrong."""

    def __init__(self, world: World, base: str) -> None:
        self.world = world
        self.base = base
        self.goods = Goods(world)
        self.fired: set[str] = set()
        self.asked: Counter[str] = Counter()
        self.told_to_wait = 0
        self.last_asked_at = time.monotonic()
        self.account = Account(world, self.fired)
        self.is_healed = False
        """Whether what lasts is over, too."""
        self._lies = 0
        self._changes = 0
        self._late = 0
        self._questions = 0
        self._pages: dict[str, bytes] = {}
        self._clock_off = 0
        self._cached_date: str | None = None
        self.is_date_fresh = False
        """Whether caches have stopped sending an old Date."""
        self.is_out = False
        """Whether it answers nothing but errors for a while."""
        self.late: dict[int, tuple[int, int]] = {}
        """Orders that show up late: the version that does, and the moment by which windows should find it."""

    def heal(self) -> None:
        """End what lasts; and the waits that were asked for."""
        self.is_healed, self.account.is_healed, self.told_to_wait = True, True, 0

    def renew(self, form: Mapping[str, str]) -> Answer:
        """Give an access token for a refresh token."""
        return refuse_with(500, "broken", "the platform is out") if self.is_out else self.account.renew(form)

    def set_back(self) -> None:
        """Let the clock that is shown be behind from now on."""
        self._clock_off = -BACK_SECONDS * MICRO
        self.fired.add("clock_back")

    def ask(self, path: str, query: Mapping[str, str], headers: Mapping[str, str]) -> Answer:
        """Answer one request."""
        self.last_asked_at = time.monotonic()
        self.goods.market.tick()
        served = strip_version(self.world, path, query, headers)
        if served is None:
            answer = refuse_with(404, "refused", "this version is not served")
        elif self.is_out:
            answer = refuse_with(500, "broken", "the platform is out")
        else:
            question = Question.read(served, query)
            self.asked[question.name] += 1
            self.goods.questions += 1
            answer = self._answer(question, query, headers)
        answer.headers["Date"] = self._date()
        return answer

    def _date(self) -> str:
        """Return what the header Date says; nothing where it is left out."""
        date = format_datetime(moment(self._told_now_us // MICRO * MICRO), usegmt=True)
        if self.world.has("date_missing") and not self.is_healed:
            self.fired.add("date_missing")
            return ""
        if self.world.has("date_cached") and not self.is_date_fresh:
            self._cached_date = self._cached_date or date
            self.fired |= {"date_cached"} if self._cached_date != date else set()
            return self._cached_date
        return date

    def _answer(self, question: Question, query: Mapping[str, str], headers: Mapping[str, str]) -> Answer:
        if question.path in (record.CLOCK, record.ROOT):
            return self._clock(question)
        if (refused := self.account.refuse(query, headers)) is not None:
            return refused
        self._questions += 1
        try:
            answer = self._right(question)
        except ValueError as error:
            return refuse_with(400, "refused", str(error))
        flaw = self.world.group(Group.ANSWER)
        return answer if flaw is None else self._bend(flaw, question, answer)

    # what time it is

    @property
    def _told_now_us(self) -> int:
        ahead = AHEAD_SECONDS * MICRO if self.world.has("clock_ahead") else 0
        return self.goods.now_us + ahead + self._clock_off

    def _clock(self, question: Question) -> Answer:
        if self.world.has("clock_ahead"):
            self.fired.add("clock_ahead")
        flaw = self.world.flaw("clock_down")
        if flaw and not self.is_healed and (not flaw.passes or self.asked[question.name] <= DOWN_TIMES):
            self.fired.add(flaw.name)
            return refuse_with(500, "broken", "the clock has stopped")
        told: object = self._told_now_us // 1_000
        if self.world.has("clock_strange") and not self.is_healed:
            self.fired.add("clock_strange")
            told = "soon"
        return tell({"now_ms": told})

    # what is true, as the platform answers it

    def _right(self, question: Question) -> Answer:
        match question.path:
            case record.ORDERS:
                return self._page(question)
            case record.TOTAL:
                place = read_place(self.goods, question.query)
                return tell({"count": self._total(cut(self.goods, place), place)})
            case record.DETAIL:
                return self._detail(question)
            case record.LINES:
                return self._lines(question)
            case _:
                return refuse_with(404, "refused", f"there is nothing at {question.path}")

    def _page(self, question: Question) -> Answer:
        place = read_place(self.goods, question.query)
        is_count = place.size == 1 and self.world.page_size > 1
        if not is_count:
            self._stir(place)
        if (refused := self._end_token(place)) is not None:
            return refused
        page = cut(self.goods, place)
        self.fired |= page.fired
        rows = [self.goods.write_listed(number, older=self._is_told_older(number)) for number in page.numbers]
        self._note_rows(page, place)
        if self.world.has("told_twice") and not is_count:
            rows = [
                text for number, text in zip(page.numbers, rows, strict=True) for text in self._repeat(number, text)
            ]
        if rows and not is_count and (flaw := self.world.flaw("no_id")) and self._is_hit(flaw, question):
            self.fired.add(flaw.name)
            rows[-1] = self.goods.write_listed(page.numbers[-1], without_id=True)
        return self._send_page(place, page, rows)

    def _send_page(self, place: Place, page: Cut, rows: list[str]) -> Answer:
        world, headers, members = self.world, {"Content-Type": "application/json"}, list[str]()
        if world.is_so("total", "in_pages"):
            members.append(f'"total":{self._total(page, place)}')
        elif world.is_so("total", "in_header"):
            headers[record.TOTAL_HEADER] = str(self._total(page, place))
        if world.is_so("more", "yes"):
            members.append(f'"more":{json.dumps(page.has_more)}')
        following = self._repeat_token(place, page.following)
        if world.is_so("paging", "link"):
            if following:
                headers["Link"] = f'<{self._target(following)}>; rel="next"'
        elif not world.is_so("paging", "number"):
            members.append(f'"next":{json.dumps(self._next(following))}')
        members.append(f'"orders":[{",".join(rows)}]')
        return Answer(("{" + ",".join(members) + "}").encode(), headers=headers)

    def _target(self, following: Place) -> str:
        """Return the address of the next page."""
        prefix = f"/{record.VERSION}" if self.world.is_so("api", "in_path") else ""
        named = {record.API: record.VERSION} if self.world.is_so("api", "in_parameter") else {}
        return f"{self.base}{prefix}{record.ORDERS}?{urlencode({**named, 'page': following.seal()})}"

    def _next(self, following: Place | None) -> str | None:
        """Return what leads to the next page."""
        if following is not None:
            return following.seal(with_plus=self.world.has("plus_in_token"))
        if not self.world.has("next_is_empty"):
            return None
        self.fired.add("next_is_empty")
        return ""

    def _total(self, page: Cut, place: Place) -> int:
        total, world = page.total, self.world
        flaw = world.group(Group.TOTAL)
        if flaw is None:
            return total
        match flaw.name:
            case "total_too_large":
                told = total + 1 + flaw.dial % 3
            case "total_too_small":
                told = max(0, total - 1 - flaw.dial % 3)
            case "total_of_page":
                told = len(page.numbers)
            case "total_capped":
                told = min(total, TOTAL_MAX)
            case _:
                window = f"total/{place.first_us}/{place.last_us}"
                self.asked[window] += 1
                told = max(0, total - 1) if self.asked[window] <= 1 + flaw.dial % 2 else total
        if told != total:
            self.fired.add(flaw.name)
        return told

    def _detail(self, question: Question) -> Answer:
        number = self.goods.number_of(question.query["id"])
        flaw = self.world.group(Group.DETAIL)
        text = self.goods.whole(number)
        if flaw is not None and self._is_hit(flaw, question):
            if flaw.name == "detail_gone":
                self.fired.add(flaw.name)
                return refuse_with(404, "refused", f"there is no order {question.query['id']}")
            other = self.goods.whole(number, older=True)
            if flaw.name == "detail_other":
                other = self.goods.whole((number + 1) % len(self.goods.market.created))
            if other != text:
                self.fired.add(flaw.name)
            text = other
        return Answer(f'{{"order":{text}}}'.encode())

    def _lines(self, question: Question) -> Answer:
        """Answer with the lines of an order, some at a time."""
        number = self.goods.number_of(question.query["id"])
        lines = self.goods.lines(number, self.goods.market.shown.version[number])
        begin = int(question.query.get("after", "0"))
        end = begin + LINES_OF_A_PAGE
        following = str(end) if end < len(lines) else None
        flaw = self.world.flaw("lines_repeat")
        if flaw is not None and begin and self._is_hit(flaw, question):
            self.fired.add(flaw.name)
            following = str(begin)
        return tell({"lines": lines[begin:end], "next": following})

    # what moves, and what goes wrong

    def _stir(self, place: Place) -> None:
        """Let orders change, or show up late, while their window is read."""
        market, world = self.goods.market, self.world
        chance = dice.stream(world.seed, "stir", self._questions)
        if world.has("leaves") and self._changes < CHANGES_MAX and chance.random() < 0.6:
            shown = self.goods.find(place.first_us, place.last_us)
            if shown:
                self._changes += 1
                self.fired.add("leaves")
                market.modify(chance.choice(shown), market.now_us)
        if world.has("late_while_read") and self._late < LATE_MAX and chance.random() < 0.5:
            grain = market.grain_us
            at_us = (place.first_us + int(chance.random() * (place.last_us - place.first_us))) // grain * grain
            self._late += 1
            self.fired.add("late_while_read")
            market.create(at_us, market.now_us - at_us)
        market.tick()

    def _is_told_older(self, number: int) -> bool:
        """Whether a replica shows an order as it was before; only what is stored, so that it must not be replaced."""
        is_stored = self.goods.stored.get(number) == self.goods.market.shown.version[number] > 1
        chance = dice.share(self.world.seed, "older", number, self._questions)
        if not (self.world.has("list_older") and is_stored and chance < 0.6):
            return False
        self.fired.add("list_older")
        return True

    def _note_rows(self, page: Cut, place: Place) -> None:
        goods, market = self.goods, self.goods.market
        if self.world.has("plus_in_token") and place.number:
            self.fired.add("plus_in_token")
        if self.world.has("filter_zone") and page.numbers:
            self.fired.add("filter_zone")
        for number, (version, at_us) in self.late.items():
            is_shown = market.shown.version[number] >= version
            if self.world.has("late") and is_shown and number in page.numbers:
                self.fired.add("late")
            if self.world.has("too_late") and not is_shown and place.first_us <= at_us <= place.last_us:
                self.fired.add("too_late")
        shares_moment = len({market.shown.modified[number] for number in page.numbers}) < len(page.numbers)
        self.fired |= {"crowd", "unstable_ties"} & {*self.world.flaw_names} if shares_moment else set()
        if any(map(goods.is_undated, page.numbers)):
            self.fired.add("undated")
        if any(map(goods.is_future, page.numbers)):
            self.fired.add("future")
        if self.world.has("filter_ignored") and page.numbers:
            self.fired.add("filter_ignored")

    def _repeat(self, number: int, text: str) -> list[str]:
        if dice.share(self.world.seed, "twice", number) >= 0.3:
            return [text]
        self.fired.add("told_twice")
        return [text, text]

    def _end_token(self, place: Place) -> Answer | None:
        """Refuse a page's token as expired."""
        flaw = self.world.flaw("token_ends")
        if flaw is None or place.number < 1 or self.is_healed:
            return None
        if flaw.passes and self.asked["token ended"] >= 1 + flaw.dial % 2:
            return None
        self.asked["token ended"] += 1
        self.fired.add(flaw.name)
        return refuse_with(400, "refused", "the page token has expired")

    def _repeat_token(self, place: Place, following: Place | None) -> Place | None:
        """Lead a page to itself."""
        flaw = self.world.flaw("token_repeats")
        if flaw is None or following is None or place.number < 1 or self.is_healed:
            return following
        if flaw.passes and "token_repeats" in self.fired:
            return following
        self.fired.add(flaw.name)
        return place

    def _is_hit(self, flaw: Flaw, question: Question) -> bool:
        """Whether an answer goes wrong: what passes hits first tries here and there, what stays all from one on."""
        if flaw.name in ON_PAGES and question.path != record.ORDERS:
            return False
        if self.is_healed:
            return False
        if not flaw.passes:
            return self._questions > flaw.dial % 6
        tries = 1 if flaw.name in LIES or flaw.name == "cached" else 1 + flaw.dial % 2
        is_first = flaw.name not in self.fired
        share = dice.share(self.world.seed, flaw.name, question.name)
        if self.asked[question.name] > tries or not (is_first or share < (0.9 if flaw.name == "slow" else 0.3)):
            return False
        if flaw.name in LIES:
            self._lies += 1
            return self._lies <= LIES_MAX
        return True

    def _bend(self, flaw: Flaw, question: Question, answer: Answer) -> Answer:
        window = f"{question.query.get('from')}/{question.query.get('size')}"
        before, is_page = self._pages.get(window), question.path == record.ORDERS
        if is_page:
            self._pages[window] = answer.body
        if not self._is_hit(flaw, question):
            return answer
        match flaw.name:
            case "cached":
                if before is None or before == answer.body or is_taken_for_right(self.goods, question, before):
                    return answer
                answer.body = before
            case "error_in_200":
                code = "busy" if flaw.passes or flaw.dial % 2 else "refused"
                answer = refuse_with(200, code, f"the platform says {code}")
            case "version_ended":
                answer = refuse_with(410, "gone", "this version has ended")
            case "quota":
                self.told_to_wait += 1
                answer = refuse_with(429, "busy", "the quota of the day is used up")
                then = format_datetime(moment(self._told_now_us) + QUOTA, usegmt=True)
                # Without the header Date a moment says nothing: the clock of a world is not that of the machine.
                ways = [f"{QUOTA.total_seconds():.0f}", "9" * 400, *([] if self.world.has("date_missing") else [then])]
                answer.headers["Retry-After"] = ways[flaw.dial % len(ways)]
            case "slow":
                answer.pause_seconds = SLOW_SECONDS
            case name:
                now = moment(self._told_now_us)
                bending = Bending(self._questions, self.asked[question.name], flaw.dial, flaw.passes, now)
                BENDS[name](answer, bending)
        self.fired.add(flaw.name)
        return answer


assert set(BENDS) >= {name for name, kind in KINDS.items() if kind.group is Group.ANSWER} - {
    *("cached", "error_in_200", "quota", "slow", "version_ended")
}
