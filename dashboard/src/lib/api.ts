// Calls to the control API. The page has no other way to read or change anything.

export interface Fault {
  code: number
  message: string
  /** JSON pointer to the field in the body, such as `/origins/1/weight`. */
  pointer?: string
}

export interface Answer<T> {
  result: T
  /** Warnings: the call did what was asked, and this should be known. */
  messages: string[]
  total: number | null
  /** Of a dry run: what would move. */
  moves: Moves | null
}

/** What would move if a change were made. */
export interface Moves {
  /** By load balancer: the part of its requests that other endpoints would answer, 0..1. */
  traffic: { load_balancer: string; share_moved: number }[]
  sessions_cut: number
  referenced_by: string[]
}

/** A change as it would be sent. */
export interface Change {
  method: 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  path: string
  body?: unknown
}

export class Refusal extends Error {
  constructor(
    readonly status: number,
    readonly faults: Fault[],
  ) {
    super(faults.map((fault) => fault.message).join('\n'))
  }

  /** The node has no such part, or keeps no store to write to. */
  get unbuilt(): boolean {
    return this.status === 501 || this.faults.some((fault) => fault.code === 7003)
  }
}

let csrf = ''
let lost: () => void = () => {}

/** The word that every change must carry. */
export function speakFor(word: string): void {
  csrf = word
}

/** Called when the session has ended. */
export function whenLost(told: () => void): void {
  lost = told
}

interface Envelope<T> {
  success: boolean
  errors: { code: number; message: string; source?: { pointer?: string } }[]
  messages: { message: string }[]
  result: T
  result_info?: { total_count?: number }
  dry_run?: Moves | null
}

/** How often a call is repeated whose answer asks for it. */
const AGAIN_MAX = 3
const WAIT_SECONDS_MAX = 5

/** Sends until an answer comes that does not ask to come again. */
async function send(method: string, path: string, body?: unknown): Promise<Response> {
  const headers: Record<string, string> = {}
  if (body !== undefined) headers['content-type'] = 'application/json'
  if (method !== 'GET' && csrf !== '') headers['x-usher-csrf'] = csrf
  try {
    for (let again = 0; ; again++) {
      // By this word the node knows what it has done already, and does it once.
      if (again > 0) headers['x-stainless-retry-count'] = String(again)
      const response = await fetch(path, {
        method,
        headers,
        credentials: 'same-origin',
        body: body === undefined || typeof body === 'string' ? body : JSON.stringify(body),
      })
      // Such as by a process whose place another one has just taken.
      const wait = response.status === 503 ? Number(response.headers.get('retry-after')) : 0
      if (!(wait > 0) || again === AGAIN_MAX) return response
      await new Promise((done) => setTimeout(done, Math.min(wait, WAIT_SECONDS_MAX) * 1000))
    }
  } catch {
    throw new Refusal(0, [{ code: 0, message: 'The node does not answer. Nothing was changed that you have not seen confirmed.' }])
  }
}

async function exchange<T>(method: string, path: string, body?: unknown): Promise<Answer<T>> {
  const response = await send(method, path, body)
  let envelope: Envelope<T>
  try {
    // A seed has 64 bits, more than a number of this language holds: it stays text.
    envelope = JSON.parse((await response.text()).replace(/("seed":)(\d{16,})/g, '$1"$2"'))
  } catch {
    throw new Refusal(response.status, [{ code: 0, message: `The node answered ${response.status} without an explanation.` }])
  }
  if (!envelope.success) {
    const faults = envelope.errors.map(({ code, message, source }) => ({
      code,
      // Every field fault ends so; the field itself says it better.
      message: message.replace(/: validation failed$/, ''),
      pointer: source?.pointer,
    }))
    throw new Refusal(response.status, faults)
  }
  return {
    result: envelope.result,
    messages: (envelope.messages ?? []).map((message) => message.message),
    total: envelope.result_info?.total_count ?? null,
    moves: envelope.dry_run ?? null,
  }
}

/** A call under `/client/v4`. A body that is text is sent as it is. */
export async function call<T>(method: string, path: string, body?: unknown): Promise<Answer<T>> {
  try {
    return await exchange<T>(method, `/client/v4${path}`, body)
  } catch (error) {
    if (error instanceof Refusal && error.faults.some((fault) => fault.code === 6003)) lost()
    throw error
  }
}

/** A call whose answer has no envelope: those about the browsers that programs hold. */
export async function bare<T>(method: string, path: string): Promise<T> {
  const response = await send(method, `/client/v4${path}`)
  const answer = await response.json().catch(() => null)
  if (response.ok && answer !== null) return answer as T
  // What refuses a caller has one, as everywhere.
  const faults: Fault[] = answer?.errors ?? [
    { code: 0, message: answer?.error ?? `The node answered ${response.status} without an explanation.` },
  ]
  if (faults.some((fault) => fault.code === 6003)) lost()
  throw new Refusal(response.status, faults)
}

/** What a change would move; a refusal is that of the change itself. */
export async function preview({ method, path, body }: Change): Promise<Moves | null> {
  return (await call(method, `${path}?dry_run=true`, body)).moves
}

/** A call about the session itself. */
export function session<T>(method: string, body?: unknown): Promise<Answer<T>> {
  return exchange<T>(method, '/session', body)
}

export function faultsOf(error: unknown): Fault[] {
  if (error instanceof Refusal) return error.faults
  return [{ code: 0, message: error instanceof Error ? error.message : String(error) }]
}
