/**
 * Long work in slices: between two slices the browser takes clicks and keys, and draws.
 *
 * Work is a generator. Each of its steps is short, and what others may see of it changes in its last step.
 */

const FIRST_SLICE = 30; // milliseconds, in which most work ends; the last step may take longer
const SLICE = 12;
const STEP = 500; // rows

/** Steps that call a function for each number from one to before another. */
export function* each(from, to, action) {
  for (let start = from; start < to; start += STEP) {
    const end = Math.min(start + STEP, to);
    for (let number = start; number < end; number++) action(number);
    yield;
  }
}

/** Run the steps of a generator, some now and the others in later tasks; gives undefined where a signal ended it. */
export async function inSlices(steps, signal) {
  for (let slice = FIRST_SLICE; !signal?.aborted; slice = SLICE) {
    const end = performance.now() + slice;
    do {
      const { done, value } = steps.next();
      if (done) return value;
    } while (performance.now() < end);
    await nextTask();
  }
  return undefined;
}

/** Wait for a task behind those that wait already; timers would wait a second in a page that is not in sight. */
function nextTask() {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });
}
