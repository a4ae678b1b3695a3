# ruff: noqa: PLC0415 - a command loads only what it needs
"""`haulage addresses`: publish changes, follow them, retry and skip, steer cycles, compare the modules."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from cli import command, wording
from cli.command import Api, AsJson, CommandFault, CommandOutput, DataDir, DryRun, Reason, Who
from cli.progress import ProgressDisplay
from haulage.errors import WorkFailed

if TYPE_CHECKING:
    from haulage.addresses import Addresses, MessageWithModuleAnswers, PublishedMessagesOutcomeCounts, UnfinishedCounts

app = typer.Typer(no_args_is_help=True, help="Publish, follow, retry and compare changes of addresses.")

EXIT_CODES: Final = (
    "Exit codes: 0 done, 1 messages or modules are not as they should be, 2 refused, 3 the API does not answer."
)
TOPICS: Final = {
    "swap": "swapDeleteInfinityAddress",
    "createUpdate": "createUpdateInfinityAddress",
    "delete": "deleteInfinityAddress",
}

MessageId = Annotated[int, typer.Argument(help="The id of a message.")]
One = Annotated[Literal["ed", "im", "wfm", "od"] | None, typer.Option("--module", help="This module only.")]
OfTopic = Annotated[str | None, typer.Option("--topic", help=f"One of {', '.join(TOPICS)}.")]
InModule = Annotated[str | None, typer.Option("--module", help="Those that failed in ed, im, wfm or od.")]
OfKind = Annotated[
    str | None, typer.Option("--kind", help="Those that wait: missing, behind, refused, failed, overtaken, paused.")
]
InState = Annotated[
    str | None, typer.Option("--state", help="Those that are waiting, processing, failed, given_up or done.")
]
Work = Callable[["Addresses", ProgressDisplay], Awaitable[CommandOutput]]


class AddressWorkFailed(WorkFailed):
    """Messages did not reach all modules, or the modules differ."""


@app.command(epilog=EXIT_CODES)
def publish(
    topic: Annotated[str, typer.Argument(help=f"One of {', '.join(TOPICS)}.")],
    messages: Annotated[list[str] | None, typer.Argument(help="Messages, each a JSON object.")] = None,
    file: Annotated[Path | None, typer.Option("--file", help="A file with one JSON object in each line.")] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Whether to follow them to their end.")] = True,
    api: Api = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Publish messages to the Pub/Sub of HAULAGE_ADDRESSES__PUBSUB__…, or of a running `haulage up`; follow them."""
    if topic not in TOPICS:
        raise typer.BadParameter(f"{topic!r} is no topic. Choose one of {', '.join(TOPICS)}.")

    async def publish_and_follow(addresses: Addresses, progress: ProgressDisplay) -> CommandOutput:
        payloads = _read_messages(messages or [], file)
        since = (await addresses.get_unfinished_counts()).at
        numbers = await publish_to_configured_pubsub(TOPICS[topic], payloads)
        await _warn_of_pauses(addresses)
        if not wait:
            return CommandOutput({"published": numbers}, (f"{len(numbers):,} messages are published.",))
        async for delivery in addresses.watch_published(numbers, since):
            progress.show("addresses", delivery.ended, delivery.total, _describe_published_messages_progress(delivery))
        return _describe_delivery_or_raise_unless_all_done(delivery)

    _run_as_admin(publish_and_follow, api, data_dir, as_json=as_json)


@app.command(epilog=EXIT_CODES)
def status(api: Api = None, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Show whether cycles run, what is paused by whom and why, and how many messages are not done."""

    async def describe_figures_and_cycle(addresses: Addresses, _: ProgressDisplay) -> CommandOutput:
        figures, cycle = await asyncio.gather(addresses.get_unfinished_counts(), addresses.get_cycle())
        state = "paused" if cycle.is_paused else f"running, {cycle.progress.phase}" if cycle.progress else "idle"
        fields = {"cycle": cycle.model_dump(mode="json"), "figures": figures.model_dump(mode="json")}
        return CommandOutput(fields, (f"cycles: {state}", *map(str, cycle.pauses), *_describe_figures(figures)))

    _run_as_admin(describe_figures_and_cycle, api, data_dir, as_json=as_json)


@app.command(name="list", epilog=EXIT_CODES)
def list_(
    state: InState = None,
    topic: OfTopic = None,
    uprn: Annotated[int | None, typer.Option(help="Those of this UPRN.")] = None,
    module: InModule = None,
    kind: OfKind = None,
    history: Annotated[bool, typer.Option("--history", help="Done messages that were archived.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 50,
    api: Api = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """List messages, newest first."""
    filters = {**_build_filters(topic, module, kind), "state": state, "uprn": uprn, "history": history}

    async def list_matching_messages(addresses: Addresses, _: ProgressDisplay) -> CommandOutput:
        found: list[MessageWithModuleAnswers] = []
        async for each in addresses.list_messages(**filters):
            found.append(each)
            if len(found) == limit:
                break
        none = "No message matches." if history else "No message matches. Done messages are archived: see --history."
        lines = tuple(map(_describe_message, found)) or (none,)
        return CommandOutput({"messages": [each.model_dump(mode="json") for each in found]}, lines)

    _run_as_admin(list_matching_messages, api, data_dir, as_json=as_json)


@app.command(epilog=EXIT_CODES)
def show(message_id: MessageId, api: Api = None, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Show a message: its text, the answer of each module, why it waits, what operators did."""

    async def describe_message_and_answers(addresses: Addresses, _: ProgressDisplay) -> CommandOutput:
        message = await addresses.get(message_id)
        lines = [_describe_message(message), f"  published: {message.payload}"]
        for module, ack in message.acks.items():
            answer = {"Y": "has it", "N": f"failed: {ack.trace}"}.get(ack.ack or "", "not called yet")
            lines.append(f"  {module}: {answer}")
        lines += [f"  {each.action} by {each.who}: {each.reason}" for each in message.actions]
        return CommandOutput(message.model_dump(mode="json"), tuple(lines))

    _run_as_admin(describe_message_and_answers, api, data_dir, as_json=as_json)


@app.command(epilog=EXIT_CODES)
def retry(
    ids: Annotated[list[int] | None, typer.Argument(help="Ids of messages; by default all that match.")] = None,
    topic: OfTopic = None,
    module: InModule = None,
    kind: OfKind = None,
    reason: Reason = "retried from the command line",
    who: Who = "",
    dry_run: DryRun = False,
    api: Api = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Retry failed messages, and wait until cycles have nothing left to do."""

    async def retry_and_follow(addresses: Addresses, progress: ProgressDisplay) -> CommandOutput:
        if dry_run:
            return await _build_dry_run_output(addresses, ids, _build_filters(topic, module, kind), "retried")
        outcome = await addresses.retry_messages(reason, ids=ids, **_build_filters(topic, module, kind))
        await _warn_of_pauses(addresses)
        async for figures in addresses.watch():
            done = max(0, outcome.retried - figures.unfinished)
            progress.show("addresses", done, outcome.retried, f"{figures.unfinished:,} messages are not done")
        fields = {**outcome.model_dump(), "given_up": figures.needing_operator}
        sentence = f"{outcome.retried:,} retried, {figures.needing_operator:,} given up"
        if figures.needing_operator:
            raise AddressWorkFailed(f"{sentence}. `haulage addresses list --state given_up` says why.", fields)
        return CommandOutput(fields, (sentence,))

    _run_as_admin(retry_and_follow, api, data_dir, as_json=as_json, who=who)


@app.command(epilog=EXIT_CODES)
def skip(
    reason: Reason,
    ids: Annotated[list[int] | None, typer.Argument(help="Ids of messages; or give conditions.")] = None,
    topic: OfTopic = None,
    module: InModule = None,
    kind: OfKind = None,
    who: Who = "",
    dry_run: DryRun = False,
    api: Api = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Give messages up for good, but none that a module has applied, or may have."""
    filters = _build_filters(topic, module, kind)

    async def skip_messages(addresses: Addresses, _: ProgressDisplay) -> CommandOutput:
        if not ids and not any(filters.values()):
            raise CommandFault("Name messages by their ids, or choose them by --topic, --module and --kind.")
        if dry_run:
            return await _build_dry_run_output(addresses, ids, filters, "skipped")
        outcome = await addresses.skip_messages(reason, ids=ids, **filters)
        left = len(ids) - outcome.skipped if ids else outcome.busy + outcome.touched
        sentence = f"{outcome.skipped:,} messages were skipped."
        if left:
            hint = "The others are done, are being processed, or a module has them, or may have."
            raise AddressWorkFailed(f"{sentence} {hint}", outcome.model_dump())
        return CommandOutput(outcome.model_dump(), (sentence,))

    _run_as_admin(skip_messages, api, data_dir, as_json=as_json, who=who)


@app.command(epilog=EXIT_CODES)
def mend(
    quarantine_id: Annotated[int, typer.Argument(help="The id of a message in quarantine.")],
    file: Annotated[Path, typer.Argument(help="A file with the corrected text.")],
    reason: Reason,
    who: Who = "",
    api: Api = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Submit the corrected text of a message in quarantine; it becomes a new message."""

    async def mend_from_file(addresses: Addresses, _: ProgressDisplay) -> CommandOutput:
        message = await addresses.mend(quarantine_id, command.read_text(file), reason)
        return CommandOutput(message.model_dump(mode="json"), (_describe_message(message),))

    _run_as_admin(mend_from_file, api, data_dir, as_json=as_json, who=who)


@app.command(epilog=EXIT_CODES)
def discard(
    ids: Annotated[list[int], typer.Argument(help="Ids of messages in quarantine.")],
    reason: Reason,
    who: Who = "",
    api: Api = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Delete messages from quarantine, which their publisher publishes again."""

    async def discard_or_fail_if_some_missing(addresses: Addresses, _: ProgressDisplay) -> CommandOutput:
        if missing := len(set(ids)) - (discarded := await addresses.discard(ids, reason)):
            raise CommandFault(f"There is no message to discard by {missing} of these ids; {discarded} were discarded.")
        return CommandOutput({"discarded": discarded}, (f"{discarded:,} messages were discarded.",))

    _run_as_admin(discard_or_fail_if_some_missing, api, data_dir, as_json=as_json, who=who)


@app.command(epilog=EXIT_CODES)
def pause(
    reason: Reason,
    module: One = None,
    who: Who = "",
    api: Api = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Pause cycles, or one module; messages are still received."""
    _pause_or_resume_cycles_or_module("pause", reason, module, who=who, api=api, data_dir=data_dir, as_json=as_json)


@app.command(epilog=EXIT_CODES)
def resume(
    reason: Reason,
    module: One = None,
    who: Who = "",
    api: Api = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Resume cycles, or one module; what was received meanwhile is loaded at once."""
    _pause_or_resume_cycles_or_module("resume", reason, module, who=who, api=api, data_dir=data_dir, as_json=as_json)


@app.command(epilog=EXIT_CODES)
def compare(api: Api = None, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Compare all addresses of the four modules."""

    async def compare_or_fail_on_differences(addresses: Addresses, _: ProgressDisplay) -> CommandOutput:
        comparison = await addresses.compare()
        fields, found = comparison.model_dump(mode="json"), comparison.found
        if found is None:
            raise AddressWorkFailed(
                f"The comparison failed: {comparison.fault.sentence if comparison.fault else ''}", fields
            )
        if found.different:
            sentence = f"{found.different:,} of {found.compared:,} UPRNs differ between modules."
            raise AddressWorkFailed(f"{sentence} The workbook names them: {found.url}", fields)
        return CommandOutput(fields, (f"The four modules are equal in all {found.compared:,} UPRNs.",))

    _run_as_admin(compare_or_fail_on_differences, api, data_dir, as_json=as_json)


def _pause_or_resume_cycles_or_module(verb: str, reason: str, module: str | None, **where: Any) -> None:
    async def pause_or_resume_and_describe(addresses: Addresses, _: ProgressDisplay) -> CommandOutput:
        if module is None:
            sentence = "No further cycle begins." if verb == "pause" else "Cycles run again."
            return CommandOutput((await getattr(addresses, verb)(reason)).model_dump(mode="json"), (sentence,))
        await getattr(addresses, f"{verb}_module")(module, reason)
        return CommandOutput({"module": module, "paused": verb == "pause"}, (f"{module}: {verb}d.",))

    _run_as_admin(pause_or_resume_and_describe, **where)


def _run_as_admin(work: Work, api: str | None, data_dir: Path | None, *, as_json: bool, who: str = "") -> None:
    from haulage.addresses import Addresses

    async def run_with_client(address: command.ApiAddress, progress: ProgressDisplay) -> CommandOutput:
        async with Addresses(address.url, address.key, who=who or command.get_user_name()) as addresses:
            return await work(addresses, progress)

    command.run_at_terminal_and_exit(
        command.run_with_api(data_dir, api, run_with_client, as_json=as_json, as_admin=True)
    )


def _build_filters(topic: str | None, module: str | None, kind: str | None) -> dict[str, Any]:
    """Return filters as the client takes them; the API refuses a wrong word, and names those that there are."""
    return {"topic": TOPICS.get(topic or "", topic), "module": module, "kind": kind}


async def publish_to_configured_pubsub(topic: str, payloads: Sequence[bytes]) -> list[str]:
    """Publish to the Pub/Sub of the settings, which a running `haulage up` has set."""
    from clients.pubsub import PubSubClient, PubSubFailure

    pubsub = command.load_settings().addresses.pubsub
    if not pubsub.project:
        raise CommandFault("No Pub/Sub is configured. Set HAULAGE_ADDRESSES__PUBSUB__PROJECT, or run `haulage up`.")
    try:
        async with PubSubClient(pubsub) as client:
            return await client.publish(topic, payloads)
    except PubSubFailure as failure:
        raise CommandFault(str(failure)) from failure


def _read_messages(arguments: Iterable[str], file: Path | None) -> list[bytes]:
    lines = command.read_lines(file) if file else []
    texts = [each for each in (*arguments, *lines) if each.strip()]
    if not texts:
        raise CommandFault("There is no message. Give some as arguments, or a --file.")
    for each in texts:
        try:
            json.loads(each)
        except ValueError as error:
            raise CommandFault(wording.describe_json_error(f"{each[:80]} is", error)) from None
    return [each.encode() for each in texts]


async def _build_dry_run_output(
    addresses: Addresses, ids: Sequence[int] | None, filters: Mapping[str, Any], effect: str
) -> CommandOutput:
    """Count the messages that an action would change: by their ids, or those that have failed and match."""
    if ids:
        found = [await addresses.get(each) for each in ids]
        ready = [each.message_id for each in found if each.state not in ("done", "processing")]
        return CommandOutput({"dry_run": True, "ids": ready}, (f"{len(ready):,} of {len(ids):,} would be {effect}.",))
    counted = await addresses.count_failed(**filters)
    line = f"{counted.messages:,} would be {effect}; a module has {counted.touched:,} of them, or may have."
    return CommandOutput({"dry_run": True, **counted.model_dump()}, (line,))


async def _warn_of_pauses(addresses: Addresses) -> None:
    """Say what messages may have to wait for."""
    for pause in (await addresses.get_cycle()).pauses:
        command.print_warning(str(pause))


def _describe_figures(figures: UnfinishedCounts) -> Iterable[str]:
    for each in figures.messages:
        if each.messages:
            yield f"{each.topic}: {each.messages:,} {each.state}, the oldest for {each.oldest_seconds:,.0f} s"
    if not figures.unfinished + figures.needing_operator:
        yield "All messages are done."
    if figures.quarantined:
        yield f"{figures.quarantined:,} could not be read, and are in quarantine"
    if figures.logical_deletes:
        yield f"{figures.logical_deletes:,} deleted addresses are kept by a module, {figures.removable:,} removable"


def _describe_published_messages_progress(delivery: PublishedMessagesOutcomeCounts) -> str:
    return (
        f"{delivery.done:,} of {delivery.total:,} messages are done, {delivery.given_up:,} given up, "
        f"{delivery.quarantined:,} in quarantine"
    )


def _describe_delivery_or_raise_unless_all_done(delivery: PublishedMessagesOutcomeCounts) -> CommandOutput:
    fields = {
        **delivery.model_dump(exclude={"messages"}),
        "unfinished": [each.message_id for each in delivery.messages if each.state != "done"],
    }
    sentence = _describe_published_messages_progress(delivery)
    if delivery.done < delivery.total:
        is_quarantine = delivery.quarantined and not delivery.given_up
        command_line = "ask /v1/addresses/quarantine" if is_quarantine else "addresses list --state given_up"
        raise AddressWorkFailed(f"{sentence}. `haulage {command_line}` and the console's quarantine say why.", fields)
    return CommandOutput(fields, (sentence,))


def _describe_message(message: MessageWithModuleAnswers) -> str:
    uprns = " and ".join(str(uprn) for uprn in (message.uprn_1, message.uprn_2) if uprn)
    parts = [f"{message.message_id}: {message.topic} of {uprns}, {message.state}"]
    if message.waits and message.waits.kind:
        places = " and ".join(message.waits.modules) or message.waits.module
        parts.append(f"({message.waits.kind}{f' in {places}' if places else ''})")
    if message.reason:
        parts.append(message.reason)
    parts += map(str, message.waits.paused if message.waits else ())
    return " ".join(parts)
