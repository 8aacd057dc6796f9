"use strict";
const all = (selector, root = document) => Array.from(root.querySelectorAll(selector));
const form = document.querySelector(".filter");
const search = form.querySelector("input[type=search]");
const boxes = all("input[type=checkbox]", form);
const requirements = all(".requirement");
const wasOpen = new Map(requirements.map((node) => [node, node.open]));
let filtered = false;

function filter() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const wanted = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
  const narrow = words.length > 0 || wanted.size < boxes.length;
  const shown = new Set();
  for (const node of all("[data-text]")) {
    const fits = wanted.has(node.dataset.verdict) && words.every((word) => node.dataset.text.includes(word));
    node.hidden = !fits;
    if (fits) shown.add(node.dataset.case);
  }
  for (const node of requirements) {
    const some = node.querySelector("[data-text]:not([hidden])") !== null;
    node.hidden = !some;
    if (narrow) node.open = some;
    else if (filtered) node.open = wasOpen.get(node);
  }
  for (const node of all(".contract")) node.hidden = node.querySelector(".requirement:not([hidden])") === null;
  filtered = narrow;
  document.querySelector(".none").hidden = shown.size > 0;
  form.querySelector("output").textContent = `${shown.size} case${shown.size === 1 ? "" : "s"}`;
}

function reveal() {
  const node = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!node || !node.classList.contains("case")) return;
  if (node.hidden) { search.value = ""; boxes.forEach((box) => { box.checked = true; }); filter(); }
  node.closest(".requirement").open = true;
  node.open = true;
  node.scrollIntoView();
  node.querySelector("summary").focus();
}

form.hidden = false;
form.addEventListener("input", filter);
form.addEventListener("submit", (event) => event.preventDefault());
for (const button of all("button[data-open]", form)) {
  button.addEventListener("click", () => {
    const open = button.dataset.open === "true";
    for (const node of all(".requirement, .case")) if (!node.hidden) node.open = open;
  });
}
if (navigator.clipboard) {
  for (const button of all("button.copy")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.previousElementSibling.textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  }
}
addEventListener("hashchange", reveal);
filter();
reveal();
