/**
 * Messages to and from the kernel, each in its turn.
 *
 * Rows arrive compressed, and inflating takes time, so handle messages one after the other. A kernel that is
 * busy with a cell answers nothing until the cell ends: so a request has a time-out, and nothing waits for ever.
 */

const ANSWER_TIMEOUT = 15_000; // milliseconds

/** Bytes that zlib compressed, as they were. */
export async function inflated(data) {
  const stream = new Blob([data]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Bytes, in any form in which the front end passes them. */
function bytesOf(data) {
  return data instanceof ArrayBuffer ? new Uint8Array(data) : new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
}

/** The connection of one page to the table in the kernel. */
export class Transport {
  constructor(model, handle, fail) {
    this.page = Math.random().toString(36).slice(2);
    this.model = model;
    this.waiting = new Map();
    this.requests = 0;
    this.turn = Promise.resolve();
    model.on("msg:custom", (content, buffers) => {
      if (content.page && content.page !== this.page) return; // another page asked for it
      const bytes = Array.from(buffers ?? [], bytesOf);
      this.turn = this.turn.then(() => this.receive(content, bytes, handle)).catch(fail);
    });
  }

  /** Tell the kernel something; throws where it is not there any more. */
  send(kind, content = {}, buffers = []) {
    try {
      this.model.send({ ...content, kind, page: this.page }, undefined, buffers);
    } catch {
      throw new Error("The kernel that filled this table is gone. Run the cell again.");
    }
  }

  /** Ask the kernel a question. */
  request(name, data = {}) {
    const id = ++this.requests;
    return new Promise((resolve, reject) => {
      const late = () => this.settle(id, () => reject(new Error("The kernel is busy. Try again when its cell has ended.")));
      this.waiting.set(id, { resolve, reject, timer: setTimeout(late, ANSWER_TIMEOUT) });
      this.send("request", { id, name, data });
    });
  }

  async receive(content, buffers, handle) {
    if (content.kind === "answer") this.settle(content.id, ({ resolve }) => resolve({ data: content.data, buffers }));
    else if (content.kind === "refusal") this.settle(content.id, ({ reject }) => reject(new Error(content.text)));
    else await handle(content, buffers);
  }

  settle(id, how) {
    const request = this.waiting.get(id);
    if (!request) return; // it came after its time-out
    this.waiting.delete(id);
    clearTimeout(request.timer);
    how(request);
  }
}
