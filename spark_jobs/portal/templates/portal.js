// The portal's one script: times in the reader's zone, tables that say that they scroll, the filter of cards, and charts.
// A page has all numbers and links without it. Texts of the data are set as text, never as HTML.
"use strict";

(() => {
  const root = document.documentElement;
  const script = document.currentScript;
  root.classList.add("js");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const count = (number) => number.toLocaleString("en-US", { maximumFractionDigits: 3 });
  const noun = (number, unit) => (number === 1 ? unit.replace(/s$/, "") : unit);
  const two = (number) => String(number).padStart(2, "0");

  // ---- times

  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
  const local = (time, precise) => {
    const day = `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`;
    return `${day} ${two(time.getHours())}:${two(time.getMinutes())}${precise}`;
  };
  const keptZone = () => {
    try {
      return window.localStorage.getItem("tidemark-zone");
    } catch {
      return null; // storage may be switched off
    }
  };
  let inUtc = zone === "UTC" || keptZone() === "UTC";

  function showTimes() {
    for (const each of document.querySelectorAll("time")) {
      each.dataset.utc ??= each.textContent;
      const precise = /\d\d:\d\d((?::\d\d(?:\.\d+)?)?)Z?$/.exec(each.dataset.utc);
      const time = new Date(each.dateTime);
      if (!precise || Number.isNaN(time.getTime())) continue;
      each.textContent = inUtc ? each.dataset.utc : local(time, precise[1]);
      each.title = inUtc ? `${local(time, precise[1])} in ${zone}` : `${each.dataset.utc.replace(/Z$/, "")} UTC`;
    }
    const words = document.getElementById("zone");
    if (!words || zone === "UTC") return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "plain";
    button.textContent = inUtc ? `Show ${zone}` : "Show UTC";
    button.addEventListener("click", () => {
      inUtc = !inUtc;
      try {
        window.localStorage.setItem("tidemark-zone", inUtc ? "UTC" : "local");
      } catch {
        // the choice lasts as long as the page
      }
      showTimes();
    });
    words.replaceChildren(`Times are in ${inUtc ? "UTC" : zone}; dates of drops are in UTC. `, button);
  }

  // ---- tables that are wider than the page

  const sized = new ResizeObserver((entries) => {
    for (const { target } of entries) target.classList.toggle("scrolls", target.scrollWidth > target.clientWidth + 2);
  });

  // ---- the filter of cards

  function filterCards(form) {
    const cards = [...document.querySelectorAll(".card[data-name]")];
    const shown = document.getElementById("shown");
    const asked = new URLSearchParams(window.location.search);
    for (const field of form.elements) {
      if (field.name && asked.has(field.name)) field.value = asked.get(field.name);
    }
    const apply = () => {
      const wanted = Object.fromEntries(new FormData(form));
      let left = 0;
      for (const card of cards) {
        const fits =
          card.dataset.name.includes(wanted.name.trim().toLowerCase()) &&
          (!wanted.owner || JSON.parse(card.dataset.owners).includes(wanted.owner)) &&
          (!wanted.tag || JSON.parse(card.dataset.tags).includes(wanted.tag)) &&
          (!wanted.need || card.dataset.need === wanted.need);
        card.hidden = !fits;
        left += fits ? 1 : 0;
      }
      const asking = Object.entries(wanted).filter(([, value]) => value);
      shown.textContent = asking.length ? `${count(left)} of ${count(cards.length)} shown` : "";
      if (window.location.protocol !== "file:") {
        const query = new URLSearchParams(asking).toString();
        window.history.replaceState(null, "", query ? `?${query}` : window.location.pathname);
      }
    };
    form.hidden = false;
    form.addEventListener("input", apply);
    form.addEventListener("reset", () => window.setTimeout(apply));
    form.addEventListener("submit", (event) => event.preventDefault());
    apply();
  }

  // ---- charts

  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const palette = () => [1, 2, 3, 4, 5, 6].map((place) => colour(`--chart-${place}`));

  function base() {
    const [text, soft, line, page] = ["--text", "--soft", "--line", "--card"].map(colour);
    return {
      text, soft, line, page,
      axis: {
        axisLine: { lineStyle: { color: soft } },
        axisTick: { show: false },
        axisLabel: { color: soft, hideOverlap: true },
        splitLine: { lineStyle: { color: line } },
      },
      option: {
        animation: false,
        color: palette(),
        textStyle: { fontFamily: getComputedStyle(document.body).fontFamily, color: text },
        tooltip: {
          renderMode: "richText", // HTML would need styles in the page, which its policy forbids
          confine: true,
          backgroundColor: page,
          borderColor: line,
          textStyle: { color: text, fontSize: 12 },
        },
      },
    };
  }

  const zooms = (line) => [
    { type: "slider", xAxisIndex: "all", bottom: 4, height: 18, brushSelect: false, borderColor: line, labelFormatter: "" },
    { type: "inside", xAxisIndex: "all", zoomOnMouseWheel: "ctrl", moveOnMouseMove: true, moveOnMouseWheel: false },
  ];
  const short = (value) =>
    Math.abs(value) >= 1e6 ? `${count(value / 1e6)} M` : Math.abs(value) >= 1e4 ? `${count(value / 1e3)} k` : count(value);

  const PANEL = 84;
  const STEP = 122;

  /** Panels above one x axis. `axis`: the options of the x axes; `lines`: for each panel its title, unit and series. */
  function panels(look, axis, lines, canvasWidth) {
    const left = 58;
    return {
      ...look.option,
      axisPointer: { link: [{ xAxisIndex: "all" }], lineStyle: { color: look.soft } },
      title: lines.map((line, place) => ({
        text: line.unit && line.unit !== line.title.toLowerCase() ? `${line.title} (${line.unit})` : line.title,
        left: 0,
        top: place * STEP + 3,
        padding: 0,
        textStyle: { color: look.text, fontSize: 13, fontWeight: 600, width: canvasWidth - 20, overflow: "truncate" },
      })),
      grid: lines.map((_, place) => ({ left, right: 14, top: place * STEP + 28, height: PANEL })),
      xAxis: lines.map((_, place) => ({
        ...look.axis,
        ...axis,
        gridIndex: place,
        splitLine: { show: false },
        axisLabel: { ...look.axis.axisLabel, show: place === lines.length - 1 },
      })),
      yAxis: lines.map((_, place) => ({
        ...look.axis,
        type: "value",
        gridIndex: place,
        splitNumber: 2,
        scale: Boolean(axis.scaled),
        axisLabel: { ...look.axis.axisLabel, formatter: short },
      })),
      series: lines.flatMap((line, place) => line.series.map((each) => ({ ...each, xAxisIndex: place, yAxisIndex: place }))),
    };
  }

  const KINDS = {
    drops(data, look, width) {
      const colours = palette();
      const lines = data.series.map((each, place) => ({
        title: each.title,
        unit: each.unit,
        series: [{ type: data.type ?? "bar", name: each.title, data: each.values, barMaxWidth: 28, itemStyle: { color: colours[place % colours.length] } }],
      }));
      const read = (at) =>
        [data.labels[at], ...data.series.map((each) => {
          const value = each.values[at];
          return `${each.title}: ${value === null ? "–" : `${count(value)} ${noun(value, each.unit)}`.trimEnd()}`;
        })];
      const option = panels(look, { type: "category", data: data.labels }, lines, width);
      option.tooltip = { ...option.tooltip, trigger: "axis", formatter: (items) => read(items[0].dataIndex).join("\n") };
      option.dataZoom = data.labels.length > 10 ? zooms(look.line) : undefined;
      return { option, height: lines.length * STEP + 52, points: data.labels.length, read, at: data.labels.length - 1 };
    },

    spark(data, look) {
      const colours = palette();
      const read = (at) => [
        data.labels[at],
        `${count(data.rows[at])} ${noun(data.rows[at], "rows")}`,
        `${count(data.late[at])} late`,
      ];
      const axis = { show: false, type: "category", data: data.labels };
      const bar = (values, fill) => ({ type: "bar", stack: "rows", data: values, barCategoryGap: "20%", itemStyle: { color: fill } });
      return {
        option: {
          ...look.option,
          tooltip: { ...look.option.tooltip, trigger: "axis", axisPointer: { type: "none" }, formatter: (items) => read(items[0].dataIndex).join("\n") },
          grid: { left: 0, right: 0, top: 4, bottom: 0 },
          xAxis: axis,
          yAxis: { show: false, type: "value" },
          series: [bar(data.rows.map((rows, at) => Math.max(rows - data.late[at], 0)), colours[0]), bar(data.late, colours[1])],
        },
        height: 48, points: data.labels.length, read, at: data.labels.length - 1,
      };
    },

    heat(data, look) {
      const most = Math.max(...data.cells.map((cell) => cell[2]));
      const read = (at) => {
        const [drop, place, number] = data.cells[at];
        return [data.labels[drop], `${data.classes[place]}: ${count(number)} ${noun(number, data.unit)}`];
      };
      return {
        option: {
          ...look.option,
          tooltip: { ...look.option.tooltip, formatter: (item) => read(item.dataIndex).join("\n") },
          grid: { left: 120, right: 14, top: 8, height: data.classes.length * 26 },
          xAxis: { ...look.axis, type: "category", data: data.labels, splitArea: { show: false } },
          yAxis: { ...look.axis, type: "category", data: data.classes },
          visualMap: {
            min: 0, max: most, calculable: false, orient: "horizontal", left: 120, bottom: data.labels.length > 10 ? 30 : 0,
            itemHeight: 90, itemWidth: 10, text: [`${count(most)} ${data.unit}`, "0"], textStyle: { color: look.soft },
            inRange: { color: [colour("--heat-0"), colour("--heat-1")] },
          },
          dataZoom: data.labels.length > 10 ? zooms(look.line) : undefined,
          series: [{ type: "heatmap", data: data.cells, itemStyle: { borderColor: look.page, borderWidth: 1 } }],
        },
        height: data.classes.length * 26 + 92, points: data.cells.length, read, at: data.cells.length - 1,
      };
    },

    flow(data, look, width) {
      const columns = Math.max(...data.nodes.map((node) => node.depth));
      // a label ends before the next column, and the last one at the edge
      const labelWidth = Math.max(142, Math.min(260, (width - 16) / (columns + 1) - 24));
      const colours = { good: colour("--chart-3"), bad: colour("--chart-5"), warn: colour("--chart-2"), plain: colour("--chart-1") };
      const label = (node) => (node.count === null ? node.label : `${node.label}\n${count(node.count)} ${noun(node.count, node.unit)}`);
      const read = (at) => {
        const link = data.links[at];
        const number = link.count === null ? "" : `: ${count(link.count)} ${noun(link.count, link.unit)}`;
        return [`${data.nodes[link.from].label} → ${data.nodes[link.to].label}${number}`];
      };
      return {
        option: {
          ...look.option,
          tooltip: {
            ...look.option.tooltip,
            formatter: (item) => (item.dataType === "edge" ? read(item.dataIndex)[0] : label(data.nodes[item.dataIndex])),
          },
          series: [{
            type: "sankey", left: 4, right: labelWidth + 8, top: 10, bottom: 24, nodeGap: 30, nodeWidth: 12, draggable: false, layoutIterations: 24,
            emphasis: { focus: "adjacency" },
            data: data.nodes.map((node, at) => ({ name: String(at), depth: node.depth, itemStyle: { color: colours[node.kind] } })),
            links: data.links.map((link) => ({ source: String(link.from), target: String(link.to), value: link.weight })),
            lineStyle: { color: "source", opacity: dark.matches ? 0.45 : 0.28 },
            label: { color: look.text, fontSize: 12, lineHeight: 15, width: labelWidth, overflow: "truncate", formatter: (item) => label(data.nodes[item.dataIndex]) },
          }],
        },
        height: data.height, points: data.links.length, read, at: 0,
        href: (item) => (item.dataType === "edge" ? null : data.nodes[item.dataIndex].href),
      };
    },

    /** Values that hold until the next one: the revisions of a row. */
    steps(data, look, width) {
      const times = data.times.map((time) => new Date(time));
      const read = (at) => [`${data.notes[at]}`, ...data.series.map((each) => `${each.title}: ${each.values[at] === null ? "–" : count(each.values[at])}`)];
      const line = (each) => ({
        type: "line", step: "end", name: each.title, symbol: "circle", symbolSize: 8, lineStyle: { width: 2 },
        data: each.values.map((value, at) => [times[at], value]),
      });
      const option = panels(look, { type: "time", scaled: true }, data.series.map((each) => ({ title: each.title, unit: "", series: [line(each)] })), width);
      option.tooltip = { ...option.tooltip, trigger: "axis", formatter: (items) => read(items[0].dataIndex).join("\n") };
      return { option, height: data.series.length * STEP + 30, points: times.length, read, at: times.length - 1 };
    },

    /** A state over event time, one line for each time at which it was known. */
    known(data, look, width) {
      const read = (at) => [
        data.times[at].replace("T", " ").replace("+00:00", " UTC"),
        ...data.lines.map((each) => `${each.title}: ${each.values[at] === null ? "–" : count(each.values[at])}`),
      ];
      const option = panels(look, { type: "time", scaled: true }, [{
        title: data.title, unit: "",
        series: data.lines.map((each, place) => ({
          type: "line", step: "end", name: each.title, symbolSize: 6, lineStyle: { width: place === data.lines.length - 1 ? 3 : 1.5 },
          data: each.values.map((value, at) => [new Date(data.times[at]), value]),
        })),
      }], width);
      option.grid[0].height = 190;
      option.grid[0].top = 52;
      option.legend = { top: 20, left: 0, type: "scroll", textStyle: { color: look.text }, pageTextStyle: { color: look.soft } };
      option.tooltip = { ...option.tooltip, trigger: "axis", formatter: (items) => read(items[0].dataIndex).join("\n") };
      return { option, height: 280, points: data.times.length, read, at: data.times.length - 1 };
    },

    groups(data, look) {
      const read = (at) => [data.labels[at], ...data.series.map((each) => `${each.title}: ${count(each.values[at])} ${noun(each.values[at], data.unit)}`)];
      return {
        option: {
          ...look.option,
          tooltip: { ...look.option.tooltip, trigger: "axis", formatter: (items) => read(items[0].dataIndex).join("\n") },
          legend: { top: 0, left: 0, textStyle: { color: look.text } },
          grid: { left: 58, right: 14, top: 36, bottom: 44 },
          xAxis: { ...look.axis, type: "category", data: data.labels, axisLabel: { ...look.axis.axisLabel, width: 90, overflow: "truncate" } },
          yAxis: { ...look.axis, type: "value", name: data.unit, nameTextStyle: { color: look.soft }, axisLabel: { ...look.axis.axisLabel, formatter: short } },
          series: data.series.map((each) => ({ type: "bar", name: each.title, data: each.values, barMaxWidth: 36 })),
        },
        height: 240, points: data.labels.length, read, at: 0,
      };
    },
  };

  const drawn = new Map();

  function draw(figure) {
    const canvas = figure.querySelector(".canvas");
    const source = figure.querySelector("script[type='application/json']");
    drawn.get(figure)?.chart.dispose();
    const made = KINDS[source.dataset.kind](JSON.parse(source.textContent), base(), canvas.clientWidth);
    canvas.style.height = `${made.height}px`;
    const chart = window.echarts.init(canvas, null, { renderer: "svg" });
    chart.setOption(made.option);
    if (made.href) {
      chart.on("click", (item) => {
        const to = made.href(item);
        if (to) window.location.assign(to);
      });
    }
    drawn.set(figure, { chart, made });
  }

  /** Arrows go from value to value and read it aloud; plus and minus zoom. */
  function steer(figure) {
    const canvas = figure.querySelector(".canvas");
    const reading = figure.querySelector(".reading");
    let at = null;
    canvas.addEventListener("keydown", (event) => {
      const { chart, made } = drawn.get(figure) ?? {};
      if (!chart) return;
      const last = made.points - 1;
      const start = at ?? made.at;
      const places = {
        ArrowLeft: at === null ? made.at : Math.max(start - 1, 0),
        ArrowRight: at === null ? made.at : Math.min(start + 1, last),
        Home: 0,
        End: last,
      };
      if (event.key in places) {
        at = places[event.key];
        chart.dispatchAction({ type: "showTip", seriesIndex: 0, dataIndex: at });
        reading.textContent = made.read(at).join(", ");
      } else if ("+-".includes(event.key) && made.option.dataZoom) {
        const { start: from, end: to } = chart.getOption().dataZoom[0];
        const [middle, half] = [(from + to) / 2, ((to - from) / 2) * (event.key === "+" ? 0.6 : 1.7)];
        chart.dispatchAction({ type: "dataZoom", start: Math.max(middle - half, 0), end: Math.min(middle + half, 100) });
      } else if (event.key === "Escape") {
        chart.dispatchAction({ type: "hideTip" });
        reading.textContent = "";
      } else {
        return;
      }
      event.preventDefault();
    });
  }

  function charts(figures) {
    const seen = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        if (!isIntersecting || drawn.has(target)) continue;
        draw(target);
        resized.observe(target.querySelector(".canvas"));
      }
    }, { rootMargin: "200px" });
    const resized = new ResizeObserver((entries) => {
      for (const { target } of entries) drawn.get(target.closest("figure"))?.chart.resize();
    });
    for (const figure of figures) {
      seen.observe(figure);
      steer(figure);
    }
    dark.addEventListener("change", () => [...drawn.keys()].forEach(draw));
    window.addEventListener("beforeprint", () => figures.filter((each) => !drawn.has(each)).forEach(draw));
  }

  // ---- a page of a run that is under way looks again, unless it is hidden

  const moving = document.querySelector("[data-reload]");
  if (moving) {
    window.setInterval(() => {
      if (!document.hidden) window.location.reload();
    }, 1000 * Number(moving.dataset.reload));
  }

  showTimes();
  for (const table of document.querySelectorAll(".wide, .pan")) sized.observe(table);
  const form = document.getElementById("filter");
  if (form) filterCards(form);
  const figures = [...document.querySelectorAll("figure.chart")].filter((each) => each.querySelector("script"));
  let library;

  /** Fetch the library once, with the first chart. */
  function withLibrary(then) {
    library ??= new Promise((resolve) => {
      const fetched = document.createElement("script");
      fetched.src = script.dataset.charts;
      fetched.addEventListener("load", resolve);
      document.head.append(fetched);
    });
    library.then(then);
  }
  if (figures.length) withLibrary(() => charts(figures));
  // a page's own script has made a figure
  document.addEventListener("tidemark-chart", ({ target }) => withLibrary(() => {
    for (const [figure, { chart }] of drawn) {
      if (figure.isConnected) continue;
      chart.dispose();
      drawn.delete(figure);
    }
    charts([target]);
  }));
})();
