// Requests to the server that the page came from, with the token of this tab.
// Rule: what goes wrong is an ApiError whose message is one sentence for people.

import type { Problem } from "./types.ts";

const TOKEN = "voda.token";
const BASE = "./api/v1";
const TIMEOUT_MS = 20_000;

export class ApiError extends Error {
  /** Of HTTP; 0: the server was not reached. */
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

export function token(): string {
  return sessionStorage.getItem(TOKEN) ?? "";
}

export function setToken(value: string): void {
  if (value) sessionStorage.setItem(TOKEN, value);
  else sessionStorage.removeItem(TOKEN);
}

export interface Call {
  method?: string;
  query?: Record<string, string | number | readonly string[] | undefined>;
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

/** Return what the server answers to a call, decoded. */
export async function ask<T>(path: string, call: Call = {}): Promise<T> {
  const limit = AbortSignal.timeout(TIMEOUT_MS);
  const signal = call.signal ? AbortSignal.any([call.signal, limit]) : limit;
  const response = await open(path, { ...call, signal });
  return (await response.json()) as T;
}

/** Return the response to a call, whose body is not read yet. */
export async function open(path: string, call: Call = {}): Promise<Response> {
  const headers = new Headers(call.headers);
  const known = token();
  if (known) headers.set("Authorization", `Bearer ${known}`);
  if (call.body !== undefined) {
    headers.set("Content-Type", call.method === "PATCH" ? "application/merge-patch+json" : "application/json");
  }
  const init: RequestInit = { method: call.method ?? "GET", headers, cache: "no-store", credentials: "omit" };
  if (call.body !== undefined) init.body = JSON.stringify(call.body);
  if (call.signal) init.signal = call.signal;
  let response: Response;
  try {
    response = await fetch(address(path, call.query), init);
  } catch (error) {
    if (call.signal?.aborted && (call.signal.reason as Error)?.name !== "TimeoutError") throw error;
    throw new ApiError(0, "The server does not answer.");
  }
  learnSkew(response);
  if (!response.ok) throw new ApiError(response.status, await sentence(response));
  return response;
}

function address(path: string, query: Call["query"] = {}): string {
  const wanted = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (typeof value === "object") for (const each of value) wanted.append(name, each);
    else if (value !== undefined) wanted.set(name, String(value));
  }
  const text = wanted.toString();
  return `${BASE}${path}${text ? `?${text}` : ""}`;
}

async function sentence(response: Response): Promise<string> {
  try {
    const problem = (await response.json()) as Problem;
    if (problem.detail) return capitalised(problem.detail);
  } catch {
    // A proxy's page: its status has to do.
  }
  return `The server answered ${response.status} ${response.statusText}.`;
}

function capitalised(text: string): string {
  const full = /[.!?]$/.test(text) ? text : `${text}.`;
  return full.charAt(0).toUpperCase() + full.slice(1);
}

/** Return the path of a job, which is named exactly: a newer job may have its name. */
export function jobPath(jobId: string, rest = ""): string {
  return `/jobs/${encodeURIComponent(`@${jobId}`)}${rest}`;
}

let skew = 0;

/** Return how far the server's clock is ahead of this machine's, to a second. */
export function skewMs(): number {
  return Math.abs(skew) < 2_000 ? 0 : skew;
}

function learnSkew(response: Response): void {
  const date = Date.parse(response.headers.get("Date") ?? "");
  if (!Number.isNaN(date)) skew = date + 500 - Date.now();
}
