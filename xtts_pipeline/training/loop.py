"""The training loop, from the first step of a run to its summary.

Metrics stay on the device until a report is due.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from xtts_pipeline.data.batch_stream import open_stream
from xtts_pipeline.data.batching import rows_of
from xtts_pipeline.errors import InterruptedRunError, TrainingError
from xtts_pipeline.system.memory import freeze_objects, release_free_memory, unfreezing_objects
from xtts_pipeline.system.runtime import NativeLog
from xtts_pipeline.system.terminal import counted
from xtts_pipeline.training.acoustic.task import AcousticTask
from xtts_pipeline.training.checkpoints.files import Checkpoint, restore_step
from xtts_pipeline.training.checkpoints.run_folder import METRICS_NAME, SKIPPED_NAME, remove_after
from xtts_pipeline.training.checkpoints.saver import SaveSchedule, Snapshot
from xtts_pipeline.training.checkpoints.state import (
    BestEvaluation,
    NetworkKind,
    RunState,
    origin_to_json,
    read_run_state,
)
from xtts_pipeline.training.checkpoints.summary import write_summary
from xtts_pipeline.training.checkpoints.variables import named_variables
from xtts_pipeline.training.compiled import RetraceError
from xtts_pipeline.training.context import OpenProgress, RunContext, prepare_run
from xtts_pipeline.training.distributed.step import DistributedStep, describe_distribution
from xtts_pipeline.training.init_from import describe_origin, warn_of_little
from xtts_pipeline.training.monitoring.compilations import total_counts
from xtts_pipeline.training.monitoring.metrics import MetricsBuffer
from xtts_pipeline.training.monitoring.startup import StartupTimer
from xtts_pipeline.training.monitoring.step_timing import WARMUP_STEPS, StepTimer
from xtts_pipeline.training.monitoring.warnings import DataWaitMonitor, LossSpikeMonitor
from xtts_pipeline.training.plan import RunPlan
from xtts_pipeline.training.resume import load_newest_finite
from xtts_pipeline.training.skipped_updates import SkipCount, SkipLog
from xtts_pipeline.training.step import TrainStep
from xtts_pipeline.training.task import Task, Validation
from xtts_pipeline.training.vocoder.task import VocoderTask

# The factor of the learning rate after a roll-back.
ROLL_BACK_RATE = 0.5
TASKS: dict[NetworkKind, type[Task]] = {"acoustic": AcousticTask, "vocoder": VocoderTask}


def train(log: NativeLog, plan: RunPlan, open_progress: OpenProgress, startup: StartupTimer) -> dict[str, Any]:
    """Carry out a plan and return the run's summary. `xtts train` calls this through the gate to TensorFlow."""
    startup.end_part("import")
    with open_progress(plan.config.training.steps) as progress, prepare_run(log, plan, progress, startup) as context:
        return run(context)


def run(context: RunContext) -> dict[str, Any]:
    """Train up to `training.steps` in all or until patience runs out; return the summary, also in summary.json.

    Every worker of a cluster calls this. Only the chief writes; the summary of the others has the number of steps.
    Raises TrainingError if updates stay not finite or a strict run retraces, InterruptedRunError after an interruption,
    with a checkpoint saved, and CheckpointError if no weight of the base checkpoint fits.
    """
    with unfreezing_objects(), context.distribution.explaining_lost_workers():
        training = _Training(context)
        try:
            training.run()
        except RetraceError as error:
            raise TrainingError(f"step {training.steps_done + 1}: {error}") from None
        except tf.errors.InternalError:
            # Ctrl-C reaches every program of the terminal, and on a GPU XLA compiles by a program, `ptxas`.
            if context.distribution.workers == 1:  # several cannot agree to stop any more
                training.stop_if_asked()
            raise
        finally:
            training.batches.close()
        return training.finish()


class _Training:
    """One run: `run` is the loop, and the methods below it are in the order in which `run` calls them."""

    def __init__(self, context: RunContext) -> None:
        self.context, self.config, self.settings = context, context.config, context.config.training
        self.source, distribution = context.source, context.distribution
        self.steps_done = context.saver.saved_step
        self.before_evaluation: RunState | None = None  # to save if a stop is requested in an evaluation
        self.task = TASKS[context.network](self.config, self.source, distribution)
        self.validation = self.task.open_validation(context.monitor)
        signatures = self.signatures = self.task.signatures
        self.train_step = self._distribute(self.task.step)
        self.variables = named_variables(self.task.step)
        state = context.state.with_batches(tuple(map(rows_of, signatures)))
        if state.position != context.state.position:
            epoch = state.position.epoch
            self._log(f"batches have other rows than before: going on with epoch {epoch}, from its beginning")
        self.position, self.batches_per_epoch = state.position, self.source.batches_per_epoch(signatures)
        rows = distribution.batch_rows(signatures)
        batches = self.source.training_batches(self.config, signatures, self.position, rows)
        send_ahead = self.train_step.send_ahead if isinstance(self.train_step, DistributedStep) else None
        self.batches = open_stream(batches, self.config.data, send_ahead)
        self.timer, self.clock = StepTimer(bool(tf.config.list_physical_devices("GPU"))), SaveSchedule(self.settings)
        self.data_wait = DataWaitMonitor(self.source.wait_advice, is_asynchronous=self.timer.is_asynchronous)
        self.warnings, self.rolled_back_at_step = list(state.warnings), state.rolled_back_at_step
        self.skips = SkipCount(state.skipped_steps, state.skipped_in_a_row)
        self.skip_log = SkipLog(context.metrics.skipped, partial(self.source.batch_clips, self.config, signatures))
        self._load_state(state)
        if context.resumption is not None:
            self._restore(context.resumption.checkpoint)
        elif context.base is not None:
            origin = self.task.copy_weights(context.base)
            self.state = replace(state, origin=origin)
            for line in describe_origin(origin):
                self._log(line)
            self.warn(*warn_of_little(origin))

    def _distribute(self, step: TrainStep) -> TrainStep | DistributedStep:
        """Return the step for one device or for all of them, with its traces counted by the monitor."""
        context = self.context
        if context.distribution.strategy is None:
            for program in step.programs:
                context.monitor.watch(*program.functions, calls=program)
            return step
        self._log(describe_distribution(context.distribution, self.signatures, self.settings))
        distributed = DistributedStep(step, self.signatures, context.distribution, context.interruption)
        distributed.watch_with(context.monitor)
        return distributed

    def _load_state(self, state: RunState) -> None:
        """Restore counters, best evaluation and watches from `state`."""
        self.state, self.is_settled, self.best = state, state.is_settled, state.best
        self.context.saver.saved_best = state.best_on_disk or state.best
        self.task.load_state(state)
        if self.validation is not None:
            self.validation.evaluations = state.evaluations
        self.spikes = LossSpikeMonitor(state.spikes)
        self.window = MetricsBuffer(self.task.step.METRICS, state.window)
        self.first_loss, self.last_loss, self.reported_step = state.first_loss, state.last_loss, state.reported_step

    def _restore(self, checkpoint: Checkpoint) -> None:
        """Load the weights of the checkpoint that the run continues from."""
        restore_step(self.variables, checkpoint)
        # Not before: settings that do not fit the weights must not replace those that do.
        self.context.write_plan()
        self.context.saver.restore_best()
        if missing := self.context.metrics.lines.missing_bytes:
            found = f"{METRICS_NAME}: {missing} bytes fewer than at step {checkpoint.step}"
            self.warn(f"{found}; reports before it are lost")

    def run(self) -> None:
        """Train until the run is over."""
        if not self.is_settled:
            # The checkpoint was saved by an interruption, before what was due after its step.
            self._after_step(self.steps_done)
        self.context.startup.end_part("build")
        while not self._is_over():
            self._train_on_next_batch()
            self.stop_if_asked()
            self._after_step(self.steps_done)

    def _is_over(self) -> bool:
        return self.steps_done >= self.settings.steps or self._is_patience_over()

    def _is_patience_over(self) -> bool:
        return self.settings.patience is not None and self.best.evaluations_without >= self.settings.patience

    def _train_on_next_batch(self) -> None:
        step = self.steps_done + 1
        self.train_step.begin(self.steps_done)
        batch = self.timer.fetch(self.batches)
        with self.timer.stepping(examples=rows_of(batch) * self.context.distribution.workers):
            result = self.train_step(batch) if self.context.startup.is_over else self._take_first_step(batch)
        self.window.add(result)
        if self.train_step.compiled.is_new_shape:
            self.timer.exclude_last_step()
        self.steps_done, self.is_settled = step, False
        self._profile(result)
        self._record_left_out_clips()
        self.position = self.position.moved(1, self.batches_per_epoch)
        self.warn(*self.context.monitor.check(step))

    def _take_first_step(self, batch: Any) -> tf.Tensor:
        """Take the first step of this process, which traces and compiles, and log the time of each part."""
        startup, compiled = self.context.startup, self.train_step.compiled
        startup.end_part("input")
        if not isinstance(self.train_step, DistributedStep):
            # Several devices trace inside the step, each its own program.
            compiled.trace(batch)
        startup.end_part("trace")
        result = self.train_step(batch)
        result.numpy()
        startup.end_first_step(self.context.monitor.compile_seconds(compiled.python_name))
        self.context.progress.log(str(startup), self.steps_done + 1)
        freeze_objects()
        release_free_memory()
        return result

    def _profile(self, result: tf.Tensor) -> None:
        """Trace steps for --profile. Tracing slows them, so the summary's step times leave them out."""
        profiling = self.context.profiling
        if profiling is None:
            return
        if profiling.is_tracing:
            self.timer.exclude_last_step()
        has_all_shapes = self.train_step.compiled.shapes_seen >= self.source.filled_buckets
        if line := profiling.after_step(result, is_warm=has_all_shapes and len(self.timer.examples) >= WARMUP_STEPS):
            self._log(line)

    def _record_left_out_clips(self) -> None:
        """Write once an epoch which clips are in no batch, if several workers share the batches."""
        distribution, epoch = self.context.distribution, self.position.epoch
        if distribution.workers > 1 and distribution.is_chief and self.position.batch == 0:
            ids = self.source.left_out(self.config, self.signatures, epoch)
            self.context.metrics.left_out.write({"epoch": epoch, "ids": ids})

    def stop_if_asked(self) -> None:
        """Save and raise InterruptedRunError if a stop is requested."""
        if not self._is_stop_agreed():
            return
        saver = self.context.saver
        if saver.saved_step != self.steps_done:
            self._save(self._snapshot(self.before_evaluation or self._run_state()))
        saver.finish()
        self.context.distribution.barrier()
        when = f"after step {self.steps_done}, which is saved" if self.steps_done else "before the first step"
        raise InterruptedRunError(f"{self.context.folder}: interrupted {when}; the same command with --resume goes on")

    def _is_stop_agreed(self) -> bool:
        """Return whether to stop here. Several workers stop if one of them was asked to before the last step."""
        interruption, step = self.context.interruption, self.train_step
        if interruption is None:
            return False
        if isinstance(step, DistributedStep) and self.context.distribution.workers > 1:
            return step.is_stop_agreed
        return interruption.is_asked

    def _after_step(self, step: int) -> None:
        """Report, validate, synthesize samples, and save or roll back, each if it is due after this step."""
        is_last = step == self.settings.steps
        validation = self.validation if step % self.settings.evaluate_every == 0 or is_last else None
        best = None
        # The report comes first: its window must hold the time of steps only.
        if validation is not None:
            self.before_evaluation = self._run_state()
            self._report(step)
            best = self._evaluate(validation, step)
            if validation.are_samples_due(is_last=self._is_over()):
                numbers, samples = validation.synthesize_samples()
                self._record(step, "speech", numbers)
                self.context.media.add(step, samples)
            self.context.progress.end_evaluation(step)
            release_free_memory()
        elif step == 1 or step % self.settings.log_every == 0 or is_last:
            self._report(step)
        self.is_settled, self.before_evaluation = True, None
        # Only a report counts the updates skipped since the one before.
        if step == self.reported_step and self.skips.in_a_row >= self.settings.max_consecutive_skips:
            self._roll_back(step)
        else:
            self._save_if_due(step, best)

    def _report(self, step: int) -> None:
        if step == self.reported_step:
            return  # an earlier process has reported it
        window, is_skipped = self.window, self.window.column("is_skipped") != 0.0
        numbers = window.means(~is_skipped)
        del numbers["mel_frames"], numbers["is_skipped"]
        numbers["skipped_updates"] = float(is_skipped.sum())
        numbers |= self.timer.close_window(round(window.sum_of_process("mel_frames")))
        self._record_skipped(step, is_skipped)
        window.clear()
        self.reported_step = step
        if math.isfinite(numbers["loss"]):
            self.last_loss = numbers["loss"]
            self.first_loss = self.last_loss if self.first_loss is None else self.first_loss
        self._record(step, "train", numbers)
        waits = self.data_wait.check(step, numbers["data_wait_share"], numbers["step_ms"])
        self.warn(*self.task.check_report(step, numbers), *waits, *self.spikes.check(numbers["loss"]))

    def _record_skipped(self, step: int, is_skipped: np.ndarray) -> None:
        """Count the window's skipped updates and write which clips they had; `step` is the window's last."""
        self.skips.add(is_skipped)
        # In float16, infinite gradients of a finite loss only mean that the loss scale is still adapting.
        is_bad = is_skipped & (~np.isfinite(self.window.column("loss")) if self.task.step.loss_scale else True)
        positions = [self.position.moved(back, self.batches_per_epoch) for back in range(-len(is_skipped), 0)]
        if warning := self.skip_log.write(step, self.window, is_bad, positions):
            self.warn(warning)

    def _evaluate(self, validation: Validation, step: int) -> BestEvaluation | None:
        """Validate; return the evaluation if it is better than every evaluation on disk, else None."""
        numbers = validation.evaluate(self.stop_if_asked)
        self._record(step, "val", numbers)
        metric, value = validation.best_metric, numbers[validation.best_metric]
        # Patience counts measured values, written or not: workers without a disk must stop at the same step.
        self.best = self.best.after(step, metric, value)
        if self._is_patience_over() and step < self.settings.steps:
            to_beat = f"{math.inf if self.best.value is None else self.best.value:.3f} of step {self.best.step}"
            found = f"{counted(self.best.evaluations_without, 'evaluation')} without a validation {metric}"
            self._log(f"stopping early: {found} under {to_beat} (training.patience)")
        is_better = self.context.saver.best.is_beaten_by(metric, value)
        return BestEvaluation(step, metric, value) if is_better else None

    def _save_if_due(self, step: int, best: BestEvaluation | None) -> None:
        """Save at the end, at a new best, and when it is time. Only the end waits for an earlier checkpoint."""
        saver, is_over = self.context.saver, self._is_over()
        self._warn_not_saved([saver.poll()])
        is_due = self.clock.is_due(step)
        if step == saver.saved_step:
            # Saved by an earlier process, before this was done.
            self._warn_not_saved([saver.settle(self._run_state(best), best, is_last=is_over)])
            self.clock.restart()
        # Sound checkpoints must not give way to one whose last update was skipped.
        elif is_over or (is_due and not saver.is_busy and self._run_state().is_last_update_finite):
            self._save(self._snapshot(self._run_state(best), best))
        elif best is not None:
            saver.enqueue(self._snapshot(self._run_state(best), best))
            self.clock.restart()

    def _save(self, snapshot: Snapshot) -> None:
        self._warn_not_saved(self.context.saver.drain())
        self.context.saver.start(snapshot)
        self.clock.restart()

    def _warn_not_saved(self, outcomes: Sequence[str | None]) -> None:
        """Warn of checkpoints that could not be saved. A lost best one is replaced by the next that beats best/."""
        self.warn(*(f"checkpoint not saved: {complaint}" for complaint in outcomes if complaint is not None))

    def _run_state(self, best: BestEvaluation | None = None) -> RunState:
        """Return the state of the run as it is now; `best` is the evaluation of this step if it is the best so far."""
        kept = best or self.context.saver.best
        return replace(
            self.state,
            position=self.position,
            is_settled=self.is_settled,
            window=self.window.to_state(),
            file_bytes=self.context.metrics.file_bytes,
            reported_step=self.reported_step,
            first_loss=self.first_loss,
            last_loss=self.last_loss,
            best=self.best,
            best_on_disk=None if kept.step == self.best.step else kept,
            evaluations=self.validation.evaluations if self.validation is not None else 0,
            aligned_at_step=self.task.aligned_at_step,
            spikes=self.spikes.state,
            skipped_steps=self.skips.total,
            skipped_in_a_row=self.skips.in_a_row,
            rolled_back_at_step=self.rolled_back_at_step,
            warnings=tuple(self.warnings),
        )

    def _snapshot(self, state: RunState, best: BestEvaluation | None = None) -> Snapshot:
        """Return a copy of the weights with a state of the run. Steps wait for this copy only, not for the disk."""
        # Reading the window for the state has waited for all queued steps.
        with self.timer.pausing():
            arrays = {name: variable.numpy() for name, variable in self.variables.items()}
        return Snapshot(self.steps_done, arrays, state, best)

    def _roll_back(self, step: int) -> None:
        """After too many skipped updates, go back to the last finite checkpoint with half the learning rate, once.

        The data stream continues where it is. Raises TrainingError the second time, or if there is no such checkpoint.
        """
        context = self.context
        limit, skipped = self.settings.max_consecutive_skips, self.skips.in_a_row
        found = f"step {step}: {skipped} updates in a row were not finite (training.max_consecutive_skips={limit})"
        remedy = f"lower training.learning_rate or training.clip_norm, and see {SKIPPED_NAME} for the clips"
        earlier, why = None, f"after it had been rolled back at step {self.rolled_back_at_step}"
        self._warn_not_saved(context.saver.drain())
        context.distribution.barrier()
        if self.rolled_back_at_step is None:
            why = "and there is no checkpoint to go back to"
            earlier = load_newest_finite(context.folder, self.config, self.state.records, self.warn)
        if earlier is None:
            # If an interruption has saved this step, the run would end here again with any other settings.
            if context.is_chief and step == context.saver.saved_step:
                remove_after(context.folder, step - 1)
            raise TrainingError(f"{found}, {why}; {remedy}")
        checkpoint, state = earlier.checkpoint, earlier.state
        restore_step(self.variables, checkpoint)
        self.task.step.rate_factor.assign(ROLL_BACK_RATE)
        context.distribution.barrier()
        if context.is_chief:
            remove_after(context.folder, checkpoint.step)
        context.metrics.rewind(checkpoint.step, state.file_bytes.get(METRICS_NAME, 0))
        context.media.rewind()
        self.steps_done = context.saver.saved_step = checkpoint.step
        self._load_state(state.rolled_back(self.state))
        context.saver.restore_best()
        self.rolled_back_at_step, self.skips.in_a_row = step, 0
        rate = f"{ROLL_BACK_RATE:g} of the learning rate"
        self.warn(f"{found}; rolled back to step {checkpoint.step}, and going on with {rate}")

    def _record(self, step: int, split: str, numbers: Mapping[str, float]) -> None:
        self.context.metrics.write(step, split, numbers)
        self.context.progress.show(step, split, numbers)
        self.warn(*self.context.monitor.check(step))

    def _log(self, line: str) -> None:
        self.context.progress.log(line, self.steps_done)

    def warn(self, *warnings: str) -> None:
        """Log warnings now and keep them for the summary."""
        self.warnings += warnings
        for warning in warnings:
            self._log(f"warning: {warning}")

    def finish(self) -> dict[str, Any]:
        """Wait until everything is written, and return the summary; the chief also writes it."""
        context = self.context
        context.saver.finish()
        context.media.close()
        self.warn(*context.media.warnings(), *(context.profiling.finish() if context.profiling else []))
        summary = self._summary() if context.is_chief else {"steps": self.steps_done}
        if context.is_chief:
            write_summary(context.folder, summary)
        # A worker that leaves before the others looks like a lost one.
        context.distribution.barrier()
        return summary

    def _summary(self) -> dict[str, Any]:
        context, best = self.context, self.context.saver.best
        return {
            "steps": self.steps_done,
            "network": context.network,
            "stopped_early": self.steps_done < self.settings.steps,
            **total_counts(context.monitor.counts()),
            "compilation_events": [asdict(event) for event in context.monitor.events],
            "unexpected_shapes": context.monitor.unexpected_shapes,
            "profile": context.profiling and context.profiling.to_json(),
            **self.timer.summary(),
            "loss": {"first": self.first_loss, "last": self.last_loss},
            "best": {"step": best.step, "metric": best.metric, "value": best.value} if best.step else None,
            "aligned_at_step": self.task.aligned_at_step,
            "startup_seconds": context.startup.seconds,
            "memory": context.monitor.memory(self.train_step.compiled.python_name, context.startup.estimated_bytes),
            "parameters": sum(variable.shape.num_elements() for variable in self.task.network.trainable_variables),
            "weights_sha256": read_run_state(context.folder).weights.sha256,
            "resumed_at_steps": list(self.state.resumed_at_steps),
            "dropped_media": context.media.dropped,
            "skipped_updates": self.skips.total,
            "rolled_back_at_step": self.rolled_back_at_step,
            "origin": self.state.origin and origin_to_json(self.state.origin),
            "warnings": self.warnings,
        }
