/**
 * A page of outputs like that of VS Code's extension Jupyter: Microsoft's own script shows the widgets, over a connection to
 * a real kernel. The kernel's server is Jupyter's, and a few lines take the place of RequireJS.
 */

import * as package_ from "./ipywidgets.js";

const defined = new Map(); // modules of RequireJS by name
let anonymous; // what the script that just ran has defined

window.define = (...words) => {
  if (typeof words[0] === "string") defined.set(words[0], words[1]());
  else anonymous = words;
};
window.requirejs = (names, done, failed) => {
  if (names.every((name) => defined.has(name))) done(...names.map((name) => defined.get(name)));
  else failed(new Error(`There is no module ${names}.`));
};

/** Run a script once, and keep the module that it defines. */
async function loaded(name) {
  const script = document.createElement("script");
  script.src = `${name}.js`;
  await new Promise((done) => {
    script.onload = done;
    script.onerror = done;
    document.head.append(script);
  });
  if (!anonymous) return;
  const [needed, factory] = anonymous;
  defined.set(name, factory(...needed.map((each) => defined.get(each))));
}

const loading = new Map();
const scriptLoader = {
  widgetsRegisteredInRequireJs: new Set(),
  loadWidgetScript(name) {
    if (!loading.has(name)) loading.set(name, loaded(name));
    return loading.get(name);
  },
  successHandler() {},
  errorHandler(className, moduleName, version, error) {
    window.problems.push(`${moduleName}.${className}: ${error}`);
  },
};

/** The module of the package whose text contains these words. */
function found(words) {
  const { require_, modules } = package_;
  return require_(Object.keys(modules).find((name) => String(modules[name]).includes(words)));
}

const WIDGET = "application/vnd.jupyter.widget-view+json";

window.problems = [];
document.cookie = "_xsrf=00; path=/"; // the server compares it with the header that the connection makes of it
package_.activate();
window.vscIPyWidgets8.load();
const { ServerConnection } = found("t.ServerConnection=void 0");
const serverSettings = ServerConnection.makeSettings({
  baseUrl: `${location.origin}/`,
  wsUrl: `${location.origin.replace("http", "ws")}/`,
});
const kernels = found('t.KERNEL_SERVICE_URL="');
const model = await kernels.startNew({ name: "python3" }, serverSettings);
const { KernelConnection } = found("t.KernelConnection=void 0");
const kernel = new KernelConnection({ model, serverSettings });
const outputs = document.getElementById("outputs");
const manager = new window.vscIPyWidgets.WidgetManager(kernel, outputs, scriptLoader, () => {});

async function show(data) {
  const place = document.createElement("div");
  place.className = "output cell-output-ipywidget-background";
  outputs.append(place);
  const view = await manager.create_view(await manager.get_model(data.model_id), { el: place });
  await manager.display_view(data, view, { node: place });
}

/** Run code, show its widgets, and give what it prints. */
window.run = async (code) => {
  const future = kernel.requestExecute({ code });
  let text = "";
  future.onIOPub = ({ header, content }) => {
    if (header.msg_type === "stream") text += content.text;
    if (header.msg_type === "error") text += content.traceback.join("\n");
    if (content.data?.[WIDGET]) show(content.data[WIDGET]).catch((error) => window.problems.push(String(error)));
  };
  const reply = await future.done;
  return [reply.content.status, text];
};
window.shutDown = () => kernels.shutdownKernel(model.id, serverSettings);
window.isReady = true;
