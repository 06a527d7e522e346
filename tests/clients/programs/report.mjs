// What a program saw, turn by turn. Each turn gets the name of its model: its own.

const report = {};

/** Run a turn and note what it returns, or the error that the client threw. */
export async function turn(model, act) {
  try {
    report[model] = { value: (await act(model)) ?? null };
  } catch (error) {
    report[model] = { error: String(error?.stack ?? error) };
  }
}

/** Print the report. What the program prints otherwise goes to standard error. */
export function tell() {
  process.stdout.write(JSON.stringify(report));
}

/** Where the gateway is. */
export const baseURL = process.env.ANTIPHON_URL;

/** Return everything that an async iterable yields. */
export async function all(items) {
  const found = [];
  for await (const item of items) found.push(item);
  return found;
}
