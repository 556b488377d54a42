// The script of the SQL page: the editor with its completion, statements at work, results, saved queries.
// Texts of the data are set as text, never as HTML. A link to share has the statement in its fragment, which no server sees.
"use strict";

(() => {
  const at = (id) => document.getElementById(id);
  const page = at("sql");
  if (!page) return;
  const {
    EditorState, EditorView, HighlightStyle, LanguageSupport, SQLDialect, autocompletion, bracketMatching,
    completionKeymap, defaultKeymap, drawSelection, highlightSpecialChars, history, historyKeymap, keymap, keywordCompletionSource,
    placeholder, schemaCompletionSource, syntaxHighlighting, tags,
  } = window.CodeMirror;
  page.hidden = false;

  // several tabs of a user have a statement each
  const tab = Array.from(window.crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  const INTEGERS = new Set(["tinyint", "smallint", "int", "bigint"]);
  const NUMBERS = new Set([...INTEGERS, "float", "double", "decimal"]);
  const TIMES = new Set(["timestamp", "date"]);
  const LONG = 64;
  const SHORT = 40;

  function element(tag, text, properties = {}) {
    const made = document.createElement(tag);
    if (text !== null) made.textContent = text;
    return Object.assign(made, properties);
  }

  const count = (number) => number.toLocaleString("en-US");
  const quoted = (name) => (/^[A-Za-z_][A-Za-z0-9_]*$/.test(name) ? name : `\`${name.replaceAll("`", "``")}\``);

  // ---- requests

  class Refusal extends Error {
    constructor(message, code) {
      super(message);
      this.code = code;
    }
  }

  /** The answer to a request: a file of CSV as a blob, or JSON. A refusal is thrown. */
  async function ask(action, values = {}, options = {}) {
    let reply;
    try {
      reply = await fetch(`sql/${action}`, {
        method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(values), cache: "no-store", ...options,
      });
    } catch {
      throw new Refusal("The portal does not answer. With Airflow `tidemark up` starts it, without Airflow `tidemark open`.", "unreachable");
    }
    const ended = () => { throw new Refusal("The connection ended before the whole answer was here.", "unreachable"); };
    if (reply.ok && reply.headers.get("Content-Type").startsWith("text/csv")) return reply.blob().catch(ended);
    const answer = await reply.json().catch(reply.ok ? ended : () => ({ error: `The portal answers with the status ${reply.status}.` }));
    if (answer !== null && "error" in answer) throw new Refusal(answer.error, answer.code);
    return answer;
  }

  // ---- the names of tables and columns

  const known = { tables: {}, functions: [], columns: new Map() };
  const places = new Map(); // the browser's list of a table's columns

  /** Look up the columns of tables that have not been looked up. */
  async function columnsOf(tables) {
    const fresh = tables.filter((table) => !known.columns.has(table));
    if (!fresh.length) return;
    const columns = await ask("columns", { tables: fresh });
    for (const table of fresh) known.columns.set(table, columns[table] ?? []);
    configureCompletion();
  }

  const names = () => Object.entries(known.tables).flatMap(([database, tables]) => tables.map((table) => `${database}.${table}`));

  /** The tables that a statement names with their databases. */
  function namedIn(text) {
    const words = new Set(text.toLowerCase().replaceAll("`", "").match(/[\w]+\.[\w]+/g) ?? []);
    const past = (word) => word.replace(/_as_of$/, "");
    for (const word of [...words]) words.add(past(word));
    return names().filter((name) => words.has(name.toLowerCase()));
  }

  function listColumns(list, table) {
    list.replaceChildren(...known.columns.get(table).map(([name, type, comment]) => {
      const item = element("li", null);
      item.append(element("code", name), " ", element("span", type, { className: "soft type" }));
      if (comment) item.append(element("small", comment));
      return item;
    }));
  }

  function listTables() {
    const groups = Object.entries(known.tables).map(([database, tables]) => {
      const group = element("details", null, { open: ["gold", "silver", "marts"].includes(database) });
      group.append(element("summary", database));
      const list = element("ul", null);
      for (const table of tables) {
        const name = `${database}.${table}`;
        const item = element("li", null);
        item.dataset.name = name.toLowerCase();
        const insert = element("button", table, { type: "button", className: "plain", title: `Insert a SELECT of ${name}` });
        insert.addEventListener("click", () => {
          setStatement(`SELECT *\nFROM ${quoted(database)}.${quoted(table)}\nLIMIT 100`);
          editor.focus();
        });
        const columns = element("details", null, { className: "columns" });
        columns.append(element("summary", "columns", { ariaLabel: `columns of ${name}` }), element("ul", null));
        columns.addEventListener("toggle", async () => {
          if (!columns.open) return;
          await columnsOf([name]).catch((refusal) => known.columns.set(name, [[refusal.message, "", ""]]));
          listColumns(columns.lastChild, name);
        });
        places.set(name, columns);
        item.append(insert, columns);
        list.append(item);
      }
      group.append(list);
      return group;
    });
    at("tables").replaceChildren(...groups);
    at("filter-tables").hidden = false;
    at("names-status").textContent = groups.length ? "" : "Nothing is published yet: run a drop first.";
  }

  at("filter-tables").addEventListener("input", (event) => {
    const wanted = event.target.value.trim().toLowerCase();
    for (const item of at("tables").querySelectorAll("li[data-name]")) item.hidden = !item.dataset.name.includes(wanted);
    for (const group of at("tables").children) {
      group.hidden = ![...group.querySelectorAll("li[data-name]")].some((item) => !item.hidden);
      if (wanted) group.open = true;
    }
  });

  async function lookUpNames() {
    try {
      const { tables, functions } = await ask("names");
      Object.assign(known, { tables, functions });
      listTables();
      configureCompletion();
      lookUpColumnsSoon();
    } catch (refusal) {
      at("names-status").textContent = refusal.message;
    }
  }

  // ---- the editor

  const SparkSQL = SQLDialect.define({
    keywords:
      "all and anti any as asc between both by case cast cross cube current current_date current_timestamp desc describe distinct else end escape except" +
      " exists explain extract filter first following for from full functions group grouping having in inner intersect into is join last lateral leading" +
      " left like limit minus natural not null nulls offset on or order outer over partition pivot preceding qualify range recursive right rlike rollup row" +
      " rows select semi set sets show some table tables tablesample then to trailing unbounded union unknown unpivot using values view views when where" +
      " window with within",
    types: "array bigint binary boolean date decimal double float int interval map smallint string struct timestamp timestamp_ntz tinyint",
    builtin: "avg coalesce count date_trunc explode max min percentile rank round row_number sum true false",
    identifierQuotes: "`", backslashEscapes: true, doubleQuotedStrings: true,
  });
  let schemaSource = () => null;

  function configureCompletion() {
    const schema = {};
    for (const [database, tables] of Object.entries(known.tables)) {
      const children = {};
      for (const table of tables) {
        children[table] = (known.columns.get(`${database}.${table}`) ?? []).map(([label, detail, info]) => ({
          label, detail, type: "property", ...(info ? { info } : {}), ...(quoted(label) === label ? {} : { apply: quoted(label) }),
        }));
      }
      for (const name of known.functions.filter((each) => each.startsWith(`${database}.`))) {
        const label = name.slice(database.length + 1);
        children[label] = { self: { label, type: "function", apply: `${quoted(label)}(` }, children: [] };
      }
      schema[database] = { self: { label: database, type: "namespace" }, children };
    }
    schemaSource = schemaCompletionSource({ dialect: SparkSQL, schema });
  }

  /** Tables, functions, and the columns behind `table.` and `alias.`. */
  async function completeNames(context) {
    await columnsOf(namedIn(context.state.doc.toString())).catch(() => undefined);
    return context.aborted ? null : schemaSource(context);
  }

  /** The columns of the tables that the statement names. */
  async function completeColumns(context) {
    const word = context.matchBefore(/[\w]*/);
    const before = context.state.sliceDoc(Math.max(word.from - 1, 0), word.from);
    if (before === "." || before === "`" || (word.from === word.to && !context.explicit)) return null;
    const tables = namedIn(context.state.doc.toString());
    await columnsOf(tables).catch(() => undefined);
    const columns = new Map(tables.flatMap((table) => (known.columns.get(table) ?? []).map((column) => [column[0], [table, column]])));
    const options = [...columns.values()].map(([table, [label, type, comment]]) => ({
      label, type: "property", detail: type, info: `${table}${comment ? `: ${comment}` : ""}`, apply: quoted(label), boost: 2,
    }));
    return { from: word.from, options, validFor: /^\w*$/ };
  }

  let soon = null;

  /** Look up the columns of the named tables before somebody asks for them. */
  function lookUpColumnsSoon() {
    window.clearTimeout(soon);
    soon = window.setTimeout(() => columnsOf(namedIn(wholeText())).catch(() => undefined), 150);
  }

  const look = EditorView.theme({
    "&": { color: "var(--text)", backgroundColor: "var(--card)", border: "1px solid var(--line)", borderRadius: ".5rem", fontSize: "15px" },
    "&.cm-focused": { outline: "3px solid var(--link)", outlineOffset: "2px" },
    ".cm-content": { caretColor: "var(--text)", minHeight: "7rem", padding: ".5rem 0" },
    ".cm-scroller": { fontFamily: "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace", lineHeight: "1.5", maxHeight: "24rem" },
    ".cm-cursor": { borderLeftColor: "var(--text)" },
    "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--plain)" },
    ".cm-placeholder": { color: "var(--soft)" },
    "&.cm-focused .cm-matchingBracket": { backgroundColor: "var(--plain)", outline: "1px solid var(--soft)" },
    ".cm-tooltip": { backgroundColor: "var(--card)", color: "var(--text)", border: "1px solid var(--line)", borderRadius: ".3rem", maxWidth: "90vw" },
    ".cm-tooltip.cm-tooltip-autocomplete > ul > li[aria-selected]": { backgroundColor: "var(--link)", color: "var(--card)" },
    ".cm-completionDetail": { fontStyle: "normal", opacity: ".8" },
    ".cm-specialChar": { color: "var(--bad-text)" },
  });
  const colours = HighlightStyle.define([
    { tag: tags.keyword, color: "var(--link)", fontWeight: "600" },
    { tag: [tags.string, tags.special(tags.string)], color: "var(--ok-text)" },
    { tag: [tags.number, tags.bool, tags.null], color: "var(--warn-text)" },
    { tag: [tags.lineComment, tags.blockComment], color: "var(--soft)" },
    { tag: tags.typeName, color: "var(--chart-4)" },
  ]);
  // the policy of the page forbids inline styles; in a shadow root CodeMirror adopts style sheets instead
  const root = at("editor").attachShadow({ mode: "open" });
  const editor = new EditorView({
    parent: root,
    root,
    state: EditorState.create({
      extensions: [
        keymap.of([
          { key: "Mod-Enter", run: () => (run(), true) },
          // Tab leaves the editor: it is no trap for the keyboard
          ...completionKeymap, ...historyKeymap, ...defaultKeymap,
        ]),
        history(), drawSelection(), highlightSpecialChars(), bracketMatching(), EditorView.lineWrapping,
        new LanguageSupport(SparkSQL.language), syntaxHighlighting(colours), look,
        autocompletion({ override: [completeColumns, completeNames, keywordCompletionSource(SparkSQL, true)], icons: false }),
        // Chromium would keep the colours of a selection that is typed over as inline styles, which the policy forbids
        EditorView.domEventHandlers({
          beforeinput(event, view) {
            if (event.inputType !== "insertText" || event.data === null || view.state.selection.main.empty) return false;
            event.preventDefault();
            view.dispatch(view.state.replaceSelection(event.data), { userEvent: "input.type", scrollIntoView: true });
            return true;
          },
        }),
        EditorView.updateListener.of((update) => { if (update.docChanged) lookUpColumnsSoon(); }),
        placeholder("SELECT … FROM gold.…"),
        EditorView.contentAttributes.of({ "aria-label": "SQL statement", spellcheck: "false", autocapitalize: "off" }),
      ],
    }),
  });

  const wholeText = () => editor.state.doc.toString();
  function setStatement(text) {
    editor.dispatch({ changes: { from: 0, to: editor.state.doc.length, insert: text }, selection: { anchor: text.length } });
  }
  /** The statement to run: the selected text, or else all of it. */
  function statement() {
    const { from, to } = editor.state.selection.main;
    const selected = editor.state.sliceDoc(from, to);
    return selected.trim() ? selected : wholeText();
  }

  // ---- a statement at work

  let clock = null;

  function say(text) {
    at("status").textContent = text;
  }

  function refuse(refusal) {
    at("error").textContent = refusal.message;
    at("error").hidden = false;
  }

  function setBusy(isBusy) {
    for (const id of ["run", "csv"]) at(id).disabled = isBusy;
    at("cancel").disabled = !isBusy;
    at("run").ariaBusy = String(isBusy);
    window.clearInterval(clock);
    if (!isBusy) return;
    const begun = Date.now();
    say("Running…");
    // the seconds are for eyes; a reader of the screen would read each of them
    clock = window.setInterval(() => { at("run").title = `running for ${count(Math.round((Date.now() - begun) / 1000))} s`; }, 1000);
  }

  async function work(action, text) {
    if (at("run").disabled) return null;
    at("error").hidden = true;
    setBusy(true);
    const begun = performance.now();
    try {
      const result = await ask(action, { statement: text, as_of: at("as-of").value, tab });
      return { result, seconds: (performance.now() - begun) / 1000 };
    } catch (refusal) {
      say(refusal.code === "statement_cancelled" ? "Cancelled." : "");
      if (refusal.code !== "statement_cancelled") refuse(refusal);
      return null;
    } finally {
      at("run").title = "";
      setBusy(false);
    }
  }

  async function run() {
    window.history.replaceState(null, "", link());
    const done = await work("run", statement());
    if (!done) return;
    show(done.result);
    say(`${rowsOf(done.result)} in ${done.seconds.toFixed(1)} s`);
  }

  async function saveCsv() {
    const done = await work("csv", statement());
    if (!done) return;
    const href = URL.createObjectURL(done.result);
    element("a", null, { href, download: "result.csv" }).click();
    window.setTimeout(() => URL.revokeObjectURL(href), 60000);
    say(`result.csv has ${count(done.result.size)} bytes`);
  }

  const cancel = (options) => ask("cancel", { tab }, options).catch(() => undefined);

  // ---- results

  const rowsOf = ({ columns, rows, more }) => {
    if (!columns.length) return "Done";
    return more ? `The first ${count(rows.length)} rows` : `${count(rows.length)} ${rows.length === 1 ? "row" : "rows"}`;
  };

  /** A number as pages show it: with separators between thousands, and all of its digits. */
  function grouped(text) {
    const parts = /^(-?)(\d+)(\.\d+)?(e[+-]?\d+)?$/i.exec(text);
    return parts ? `${parts[1]}${parts[2].replace(/\B(?=(\d{3})+$)/g, ",")}${parts[3] ?? ""}${parts[4] ?? ""}` : text;
  }

  function cell(value, type) {
    const isNumber = NUMBERS.has(type);
    const made = element("td", null, { className: isNumber ? "num" : TIMES.has(type) ? "time" : "" });
    if (value === null) {
      made.append(element("span", "–", { title: "null" }));
    } else if (isNumber || value.length <= LONG) {
      made.textContent = isNumber ? grouped(value) : value;
    } else {
      const long = element("details", null, { className: "long" });
      long.append(element("summary", `${value.slice(0, SHORT)}…`), value);
      made.append(long);
    }
    return made;
  }

  /** The cell with the link to the reasons for a row of a published table. */
  function reasonsOf(href) {
    const made = element("td", href === null ? "–" : null);
    if (href !== null) made.append(element("a", "why", { href }));
    return made;
  }

  function show(result) {
    const { columns, rows, more } = result;
    at("result").hidden = false;
    at("ran").querySelector("pre").textContent = result.statement;
    const sentences = [
      ...(result.past.length ? [`Read as known at ${at("as-of").value.replace("T", " ")} UTC: ${result.past.join(", ")}.`] : []),
      ...(at("as-of").value && result.present.length ? [`Read as it is now, since it has no past to ask for: ${result.present.join(", ")}.`] : []),
    ];
    at("read").textContent = sentences.join(" ");
    at("read").hidden = !sentences.length;
    at("rows").textContent = more ? `${rowsOf(result)}; CSV has all rows.` : "";
    const isNumber = columns.map(({ type }) => NUMBERS.has(type));
    const head = element("tr", null);
    columns.forEach(({ name, type }, place) => {
      const made = element("th", name, { scope: "col", className: isNumber[place] ? "num" : "" });
      made.append(element("br", null), element("small", type));
      head.append(made);
    });
    const hasReasons = result.why.some((href) => href !== null);
    if (hasReasons) head.append(element("th", "why", { scope: "col" }));
    at("table").hidden = !columns.length;
    at("table").querySelector("thead").replaceChildren(head);
    at("table").querySelector("tbody").replaceChildren(...rows.map((row, number) => {
      const line = element("tr", null);
      line.append(...row.map((value, place) => cell(value, columns[place].type)));
      if (hasReasons) line.append(reasonsOf(result.why[number]));
      return line;
    }));
    offerChart(result, isNumber);
  }

  // ---- the chart of a result

  let charted = null;

  function offerChart(result, isNumber) {
    const { columns, rows } = result;
    const numbers = columns.map((_, place) => place).filter((place) => isNumber[place]);
    at("drawing").hidden = rows.length < 2 || !numbers.length;
    at("chart").replaceChildren();
    charted = null;
    if (at("drawing").hidden) return;
    charted = result;
    const first = columns.findIndex(({ type }) => TIMES.has(type));
    const across = first >= 0 ? first : Math.max(columns.findIndex((_, place) => !isNumber[place]), 0);
    at("chart-x").replaceChildren(...columns.map(({ name }, place) => element("option", name, { value: String(place), selected: place === across })));
    at("chart-kind").value = first >= 0 ? "line" : "bar";
    const wanted = numbers.filter((place) => place !== across).slice(0, 2);
    at("chart-y").replaceChildren(element("legend", "Values"), ...numbers.map((place) => {
      const label = element("label", null);
      label.append(element("input", null, { type: "checkbox", value: String(place), checked: wanted.includes(place) }), ` ${columns[place].name}`);
      return label;
    }));
    drawChart();
  }

  function drawChart() {
    if (!charted) return;
    const { columns, rows } = charted;
    const across = Number(at("chart-x").value);
    const drawn = [...at("chart-y").querySelectorAll("input:checked")].map((box) => Number(box.value));
    at("chart").replaceChildren();
    if (!drawn.length) return;
    // a line goes from time to time, however the result is sorted
    const points = TIMES.has(columns[across].type) ? rows.toSorted((a, b) => (a[across] ?? "").localeCompare(b[across] ?? "")) : rows;
    const number = (text) => (text === null || !Number.isFinite(Number(text)) ? null : Number(text));
    const data = {
      type: at("chart-kind").value,
      labels: points.map((row) => (row[across] ?? "–").slice(0, LONG)),
      series: drawn.map((place) => ({ title: columns[place].name, unit: "", values: points.map((row) => number(row[place])) })),
    };
    const title = `${drawn.map((place) => columns[place].name).join(", ")} by ${columns[across].name}`;
    const figure = element("figure", null, { className: "chart" });
    const canvas = element("div", null, { className: "canvas", role: "img", tabIndex: 0, ariaLabel: `${title}, ${count(rows.length)} rows` });
    const pan = element("div", null, { className: "pan" });
    pan.append(canvas);
    const reading = element("p", null, { className: "reading", ariaLive: "polite" });
    const source = element("script", JSON.stringify(data), { type: "application/json" });
    source.dataset.kind = "drops";
    figure.append(element("figcaption", title), pan, reading, source);
    at("chart").append(figure);
    figure.dispatchEvent(new CustomEvent("tidemark-chart", { bubbles: true }));
  }

  // ---- links to share

  function link() {
    const fragment = new URLSearchParams({ statement: wholeText(), ...(at("as-of").value ? { as_of: at("as-of").value } : {}) });
    return `${window.location.href.replace(/[?#].*$/, "")}#${fragment}`;
  }

  function share() {
    const field = at("shared").querySelector("input");
    field.value = link();
    at("shared").hidden = false;
    field.select();
    if (!window.navigator.clipboard) return;
    window.navigator.clipboard.writeText(field.value).then(() => say("The link is in the clipboard."), () => undefined);
  }

  /** Open the statement of a link; nothing runs before somebody has looked at it. */
  function openShared() {
    const asked = new URLSearchParams(window.location.hash.slice(1));
    if (!asked.has("statement")) return;
    if (asked.get("statement") !== wholeText()) setStatement(asked.get("statement"));
    at("as-of").value = asked.get("as_of") ?? "";
  }

  // ---- saved queries

  let saved = [];

  async function listSaved() {
    try {
      saved = await ask("saved");
    } catch (refusal) {
      at("save-status").textContent = refusal.message;
      return;
    }
    at("saved").replaceChildren(...saved.map((query) => {
      const item = element("li", null);
      const open = element("button", query.name, { type: "button", className: "plain" });
      open.addEventListener("click", () => {
        setStatement(query.statement);
        at("save").elements.name.value = query.name;
        editor.focus();
      });
      const by = query.by === null ? "" : ` by ${query.by}, ${query.at.replace("T", " ")}`;
      const gone = element("button", "Delete", { type: "button", className: "plain", ariaLabel: `Delete ${query.name}` });
      gone.addEventListener("click", async () => {
        if (gone.dataset.sure) {
          await ask("delete", { name: query.name }).catch((refusal) => { at("save-status").textContent = refusal.message; });
          await listSaved();
        } else {
          gone.dataset.sure = "asked";
          gone.textContent = "Delete it for all users?";
        }
      });
      item.append(open, element("span", by, { className: "soft" }), " · ", gone);
      return item;
    }));
  }

  at("save").addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = at("save").querySelector("button");
    const name = at("save").elements.name.value.trim();
    if (saved.some((query) => query.name === name) && button.dataset.replaces !== name) {
      button.dataset.replaces = name;
      button.textContent = "Replace it for all users";
      return;
    }
    try {
      await ask("save", { name, statement: wholeText(), replace: button.dataset.replaces === name });
      at("save-status").textContent = `Saved as ${name}.`;
      await listSaved();
    } catch (refusal) {
      at("save-status").textContent = refusal.message;
    }
    delete button.dataset.replaces;
    button.textContent = "Save for all users";
  });

  // ----

  at("run").addEventListener("click", run);
  at("csv").addEventListener("click", saveCsv);
  at("cancel").addEventListener("click", () => cancel());
  at("share").addEventListener("click", share);
  at("now").addEventListener("click", () => { at("as-of").value = ""; });
  at("drawing").addEventListener("change", drawChart);
  window.addEventListener("hashchange", openShared);
  window.addEventListener("pagehide", () => { if (!at("cancel").disabled) cancel({ keepalive: true }); });
  at("browser").open = window.matchMedia("(min-width: 60rem)").matches;
  configureCompletion();
  openShared();
  lookUpNames();
  listSaved();
})();
