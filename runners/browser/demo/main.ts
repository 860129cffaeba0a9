/** A page with the page tools and a tool of its own. */
import { pageTools } from "@toolrunner/runner-browser";
import { createRunner, defineTool } from "@toolrunner/runner-sdk";
import { connectWebSocket } from "@toolrunner/runner-sdk/browser";
import { readConnection, subjectOf } from "./connection.js";

const form = document.querySelector<HTMLFormElement>("#order");
const list = document.querySelector("#orders");
const status = document.querySelector("#runner");
const orders: string[] = [];

function placeOrder(article: string, more: string): string {
  const order = `A${orders.length + 1}`;
  orders.push(order);
  const item = document.createElement("li");
  item.textContent = `${order}: ${article}, ${more}`;
  list?.append(item);
  return order;
}

form?.addEventListener("submit", (event) => {
  event.preventDefault();
  const data = new FormData(form);
  const gift = data.get("gift") === null ? "" : ", as a gift";
  placeOrder(String(data.get("article")), `${String(data.get("number"))} by ${String(data.get("delivery"))}${gift}`);
});

// A tool of the product: the same functions that its buttons use.
const orderTool = defineTool({
  name: "order",
  description: "Place an order for the user.",
  input: { type: "object", properties: { article: { type: "string" } }, required: ["article"] },
  run: ({ article }) => ({ order: placeOrder(article, "ordered by the agent") }),
});

const show = (text: string) => {
  if (status !== null) status.textContent = text;
};

try {
  const { ws, runner_token } = await readConnection();
  const runner = createRunner({
    transport: connectWebSocket(ws),
    binding: "demo_page",
    subject: subjectOf(location.href),
    token: runner_token,
    tools: [...pageTools(document), orderTool],
  });
  runner.onState((state) => show(`${state.kind} as ${runner.runnerId}`));
  await runner.start();
} catch (error) {
  show(error instanceof Error ? error.message : String(error));
}
