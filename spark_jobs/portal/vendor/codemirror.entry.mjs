// The parts of CodeMirror that the SQL page uses, as one global object; `make vendor` bundles them.
export { autocompletion, completionKeymap } from "@codemirror/autocomplete";
export { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
export { SQLDialect, keywordCompletionSource, schemaCompletionSource } from "@codemirror/lang-sql";
export { HighlightStyle, LanguageSupport, bracketMatching, syntaxHighlighting } from "@codemirror/language";
export { EditorState } from "@codemirror/state";
export { EditorView, drawSelection, highlightSpecialChars, keymap, placeholder } from "@codemirror/view";
export { tags } from "@lezer/highlight";
