"""The workflow of a report: read a day once more, part by part, then compare all of it with the stored orders."""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.orders.reporting import ReportActivities
    from domain.orders import names
    from domain.orders.activity_models import ReportInput, ReportPartInput, ReportProgress, ReportResult
    from workflows.activity_calls import REPORT_READING, REPORT_WRITING


@workflow.defn(name=names.REPORT_WORKFLOW)
class OrderReportWorkflow:
    """Report of one day of one platform."""

    @workflow.init
    def __init__(self, params: ReportInput) -> None:
        self._params = params
        self._part = params.so_far or ReportProgress(number=0, read_to=params.window.start)

    @workflow.run
    async def run(self, params: ReportInput) -> ReportResult:
        """Read part after part, then compare."""
        while self._part.read_to < params.window.end:
            self._part = await self._read()
            workflow.set_current_details(f"read to {self._part.read_to.isoformat()} of {params.window.end.isoformat()}")
            if workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(params.model_copy(update={"so_far": self._part}))
        return await workflow.execute_activity_method(
            ReportActivities.write_report,
            self._step(),
            task_queue=names.report_queue(params.platform),
            **REPORT_WRITING,
            summary=f"compare {params.day}",
        )

    @workflow.query
    def status(self) -> ReportProgress:
        """Return how far the day has been read."""
        return self._part

    async def _read(self) -> ReportProgress:
        return await workflow.execute_activity_method(
            ReportActivities.read_part,
            self._step(),
            task_queue=names.report_queue(self._params.platform),
            **REPORT_READING,
            summary=f"read on from {self._part.read_to.isoformat()}",
        )

    def _step(self) -> ReportPartInput:
        run = workflow.info().first_execution_run_id
        folder = names.report_parts(self._params.platform, self._params.day.isoformat(), run)
        return ReportPartInput(order=self._params, folder=folder, after=self._part)
